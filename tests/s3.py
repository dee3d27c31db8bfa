"""A real S3 server on loopback (moto's), that knows its users.

Whatever speaks to it runs in a process of its own: clients of S3 keep threads, sockets and
credentials for as long as their process lives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusters import TESTS, until
from slurm import free_ports

SET_UP = """
import json, sys
import boto3
own = {"endpoint_url": sys.argv[1], "region_name": "us-east-1"}
own |= {"aws_access_key_id": "first", "aws_secret_access_key": "first"}
boto3.client("s3", **own).create_bucket(Bucket="data")
iam = boto3.client("iam", **own)
iam.create_user(UserName="user")
allow = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=policy)
key = iam.create_access_key(UserName="user")["AccessKey"]
print(json.dumps([key["AccessKeyId"], key["SecretAccessKey"]]))
"""


@dataclass(frozen=True)
class S3:
    """Where the bucket `data` is, and who may use it."""

    url: str
    key: str
    secret: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs, and nothing of what this machine has."""
        paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "DSHIFT_"))}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def python(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python in a process that may use the bucket."""
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=400,
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


@contextmanager
def serve(folder: Path) -> Iterator[S3]:
    """Run a server that checks who asks."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with open(folder / "moto.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "1000"},
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: _answers(f"{url}/moto-api/"), "the S3 server answers")
        done = subprocess.run(
            [sys.executable, "-c", SET_UP, url], check=True, capture_output=True, text=True
        )
        # From now on it asks for credentials.
        ask = urllib.request.Request(
            f"{url}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}, method="POST"
        )
        with urllib.request.urlopen(ask, timeout=60):
            pass
        yield S3(url, *json.loads(done.stdout))
    finally:
        server.kill()  # it holds nothing that is worth an orderly end
        server.wait()
