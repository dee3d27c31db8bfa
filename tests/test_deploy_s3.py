"""From object storage to object storage, with a real S3 server: the fit, a kill, every refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from s3 import S3, serve

SECRET = "hunter2"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serve(tmp_path_factory.mktemp("s3")) as server:
        yield server


# Writes histograms, and begins a fit whose process is killed at its fourth block.
KILLED = """
import os, signal
from clusters import histograms
from dshift import threads
from dshift.cli import main

histograms(100).to_dataset(name="counts").to_zarr("s3://data/hist.zarr", consolidated=False)
climb, begun = threads.climb_share, []

def climb_three(stage, block):
    begun.append(block)
    if len(begun) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return climb(stage, block)

threads.climb_share = climb_three
words = ["fit", "s3://data/hist.zarr", "s3://data/found.zarr", "--bandwidth", "0.3"]
main([*words, "--block-size", "10", "--threads", "1"])
"""
# Continues it, and looks for credentials in whatever comes out.
RESUMED = """
import logging, os, sys
import fsspec, xarray as xr
import dshift
from clusters import histograms
from dshift.cli import main

words = ["fit", "s3://data/hist.zarr", "s3://data/found.zarr", "--bandwidth", "0.3"]
main([*words, "--block-size", "10"], standalone_mode=False)
found = xr.open_zarr("s3://data/found.zarr", consolidated=False).load()
here = dshift.fit(histograms(100), 0.3, valley=0.1)
xr.testing.assert_identical(found.drop_attrs(), here.drop_attrs())

group = fsspec.get_mapper("s3://data/found.zarr")
stored = b"".join(group.values())
page = dshift.report(found, "s3://data/hist.zarr", sys.argv[1])
said = str(found.attrs).encode() + stored + open(sys.argv[1], "rb").read()
# The same with credentials that are handed over by the caller, and not in the environment.
key, secret = (os.environ.pop(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
import s3fs, zarr
s3fs.S3FileSystem.clear_instance_cache()
options = {"key": key, "secret": secret}
data = zarr.open_group("s3://data/hist.zarr", mode="r", storage_options=options)
again = dshift.fit(data, 0.3, valley=0.1)
xr.testing.assert_identical(again.drop_attrs(), here.drop_attrs())
said += str(again.attrs).encode()
assert secret.encode() not in said, "the secret was stored or reported"
assert key.encode() not in said, "the key was stored or reported"
print("the same bits, and no secret")
"""


def test_a_killed_fit_is_resumed_on_s3_and_no_secret_is_kept(s3: S3, tmp_path) -> None:
    killed = s3.python(KILLED)
    assert killed.returncode == -9, killed.stderr
    resumed = s3.python(RESUMED, str(tmp_path / "report.html"))
    assert resumed.returncode == 0, resumed.stderr
    assert "reused 3 of 10 blocks" in resumed.stderr
    assert "result: s3://data/found.zarr" in resumed.stdout
    assert "the same bits, and no secret" in resumed.stdout
    for said in (killed.stdout, killed.stderr, resumed.stdout, resumed.stderr):
        assert s3.secret not in said
        assert s3.key not in said


# Runs commands one after the other, each with settings of its own; None unsets one.
REFUSED = """
import json, os, sys
import s3fs
from console import invoke

first = dict(os.environ)
for words, settings in json.loads(sys.argv[1]):
    s3fs.S3FileSystem.clear_instance_cache()
    done = invoke(words, settings)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""
HERE, THERE = "s3://data/small.zarr", "s3://data/new.zarr"
NOWHERE = f"ftp://user:{SECRET}@127.0.0.1:1/x.zarr"


def test_what_is_said_when_s3_refuses(s3: S3) -> None:
    write = "from clusters import histograms\nhistograms(9).to_dataset(name='counts').to_zarr("
    written = s3.python(f"{write}'{HERE}', consolidated=False)")
    assert written.returncode == 0, written.stderr
    nobody = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
    no_server = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}
    cases: list[tuple[str, str, dict[str, str | None], str]] = [
        ("s3://data/nothing.zarr", THERE, {}, "holds no Zarr array or group"),
        ("s3://nobucket/x.zarr", THERE, {}, "'s3://nobucket/x.zarr' holds no Zarr array"),
        (HERE, "s3://nobucket/x.zarr", {}, "The specified bucket does not exist"),
        (HERE, THERE, {"AWS_SECRET_ACCESS_KEY": SECRET}, "The request signature we calculated"),
        (HERE, THERE, nobody, "Unable to locate credentials"),
        (HERE, THERE, no_server, "cannot be reached"),
        (NOWHERE, THERE, {}, "`data`='ftp://127.0.0.1:1/x.zarr' cannot be opened"),
        (HERE, NOWHERE, {}, "`store`='ftp://127.0.0.1:1/x.zarr' cannot be reached"),
    ]
    calls = [(["fit", a, b, "--bandwidth", "1"], settings) for a, b, settings, _ in cases]
    done = s3.python(REFUSED, json.dumps(calls))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (*call, message), (code, stdout, stderr) in zip(cases, answers, strict=True):
        assert (code, stdout) == (2, ""), (call, stderr)
        errors = [line for line in stderr.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1, (call, stderr)
        assert message in errors[0], (call, stderr)
        assert "Traceback" not in stderr
        assert SECRET not in stderr
        assert s3.secret not in stderr
