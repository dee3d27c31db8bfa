"""deploy/kubernetes: strictly valid, locked down, and made of commands that work."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from clusters import until
from console import invoke
from manifests import DEPLOY, KUBERNETES, check, containers, load, pod_specs, render
from s3 import S3, serve
from slurm import free_ports

FILES = [p for p in sorted(KUBERNETES.rglob("*.yaml")) if "overlays" not in p.parts]
OBJECTS = [each for path in FILES if path.name != "kustomization.yaml" for each in load(path)]
IDS = [f"{each['kind']}-{each['metadata']['name']}" for each in OBJECTS]
OPERATOR = KUBERNETES / "operator"


def find(kind: str, name: str) -> dict[str, Any]:
    [found] = [o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("document", OBJECTS, ids=IDS)
def test_every_object_is_strictly_valid(document: dict[str, Any]) -> None:
    check(document)


def test_everything_that_was_asked_for_is_there() -> None:
    kinds = {each["kind"] for each in OBJECTS}
    assert kinds >= {"Deployment", "Service", "Job", "NetworkPolicy"}
    assert kinds >= {"DaskCluster", "DaskJob", "DaskAutoscaler"}


def misspell(document: Any, key: str) -> bool:
    """Misspell the first field of a name; return whether there is one."""
    if isinstance(document, list):
        return any(misspell(each, key) for each in document)
    if not isinstance(document, dict):
        return False
    if key in document:
        document[f"{key}x"] = document.pop(key)
        return True
    return any(misspell(value, key) for value in document.values())


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        ("Deployment", "dshift-worker", "readOnlyRootFilesystem"),
        ("Deployment", "dshift-scheduler", "strategy"),
        ("Service", "dshift-scheduler", "targetPort"),
        ("Job", "dshift-fit", "podFailurePolicy"),
        ("NetworkPolicy", "dshift", "policyTypes"),
        ("ConfigMap", "dshift-fit", "data"),
        ("DaskCluster", "dshift", "scheduler"),
        ("DaskCluster", "dshift", "enableServiceLinks"),
        ("DaskJob", "dshift", "replicas"),
        ("DaskJob", "dshift", "volumeMounts"),
        ("DaskAutoscaler", "dshift", "maximum"),
    ],
)
def test_a_misspelt_field_is_an_error(kind: str, name: str, key: str) -> None:
    document = copy.deepcopy(find(kind, name))
    assert misspell(document, key)
    with pytest.raises(jsonschema.ValidationError):
        check(document)


@pytest.mark.parametrize(("size", "n_workers"), [("small", 2), ("large", 16)])
def test_overlays_change_workers_alone(size: str, n_workers: int) -> None:
    base = render(KUBERNETES / "base")
    overlay = render(KUBERNETES / "overlays" / size)
    for before, after in zip(base, overlay, strict=True):
        check(after)
        for container in containers(after):
            assert container.pop("image") == "registry.example.org/dshift:0.1.0"
        for container in containers(before):
            container.pop("image")
        if after["metadata"]["name"] != "dshift-worker":
            assert after == before
            continue
        assert after["spec"]["replicas"] == n_workers
        [worker] = containers(after)
        assert worker["resources"] != next(containers(before))["resources"]
        assert (
            after["spec"]["template"]["spec"]["volumes"][1]["emptyDir"]["sizeLimit"]
            == (worker["resources"]["limits"]["ephemeral-storage"])
        )


@pytest.mark.parametrize("document", OBJECTS, ids=IDS)
def test_pods_are_locked_down(document: dict[str, Any]) -> None:
    for spec in pod_specs(document):
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {v["name"]: set(v) - {"name"} for v in spec["volumes"]} == {
            "tls": {"secret"},
            "scratch": {"emptyDir"},
        }
        for container in spec["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            serves = container["name"] != "fit"
            assert ("readinessProbe" in container) == ("livenessProbe" in container) == serves


def test_the_operator_runs_the_same_pods_as_the_plain_manifests() -> None:
    plain = {c["name"]: s for o in render(KUBERNETES / "base") for s, c in with_containers(o)}
    for name in ("cluster.yaml", "job.yaml"):
        for document in load(OPERATOR / name):
            for spec, container in with_containers(document):
                expected = copy.deepcopy(plain[container["name"]])
                if container["name"] == "worker":
                    expected["containers"][0]["args"] += ["--name", "$(DASK_WORKER_NAME)"]
                if container["name"] == "scheduler":
                    # How the operator asks what is wanted.
                    [routes] = container["env"]
                    assert "distributed.http.scheduler.api" in json.loads(routes["value"])
                    expected["containers"][0]["env"] = [routes]
                assert spec == expected


def with_containers(document: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for spec in pod_specs(document):
        [container] = spec["containers"]
        yield spec, container


def test_the_parts_find_one_another() -> None:
    service = find("Service", "dshift-scheduler")
    [scheduler] = containers(find("Deployment", "dshift-scheduler"))
    labels = find("Deployment", "dshift-scheduler")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert {p["targetPort"] for p in service["spec"]["ports"]} == {
        p["name"] for p in scheduler["ports"]
    }
    allowed = {
        port["port"]
        for rule in find("NetworkPolicy", "dshift")["spec"]["ingress"]
        for port in rule["ports"]
    }
    [worker] = containers(find("Deployment", "dshift-worker"))
    used = {p["containerPort"] for c in (scheduler, worker) for p in c["ports"]}
    assert used == allowed
    # What the operator makes carries its object's labels, and the policy goes by them.
    for name in ("DaskCluster", "DaskJob"):
        own = find(name, "dshift")["metadata"]["labels"]
        policy = find("NetworkPolicy", "dshift")["spec"]["podSelector"]["matchLabels"]
        assert policy.items() <= own.items()
    assert find("DaskAutoscaler", "dshift")["spec"]["cluster"] == "dshift"
    maps = {o["metadata"]["name"] for o in OBJECTS if o["kind"] == "ConfigMap"}
    for container in (c for o in OBJECTS for c in containers(o)):
        for source in container["envFrom"]:
            assert source.get("secretRef", {}).get("name", "dshift-s3") == "dshift-s3"
            assert source.get("configMapRef", {}).get("name", "dshift-dask") in maps


# ---------------------------------------------------------------- the commands, run


class Pods:
    """The containers' own commands and environment, as processes on loopback.

    Names and ports of the cluster are replaced by free ports of this machine, and folders of the
    pods by folders of the test.
    """

    def __init__(self, folder: Path, s3: S3) -> None:
        self.folder, self.s3 = folder, s3
        comm, http = free_ports(2)
        self.dashboard = f"http://127.0.0.1:{http}"
        self.replaced = {
            "tls://dshift-scheduler:8786": f"tls://127.0.0.1:{comm}",
            "8786": str(comm),
            ":8787": f"127.0.0.1:{http}",
            "9000": "0",
            "9001": "0",
            ":9002": "127.0.0.1:0",
            "/scratch": str(folder),
            "s3://bucket/histograms.zarr": "s3://data/hist.zarr",
            "s3://bucket/found.zarr": "s3://data/found.zarr",
        }

    def here(self, text: str) -> str:
        return self.replaced.get(text, text.replace("/tls/", f"{self.folder}/tls/"))

    def environment(self, container: dict[str, Any]) -> dict[str, str]:
        maps = [s["configMapRef"]["name"] for s in container["envFrom"] if "configMapRef" in s]
        data = {k: v for name in maps for k, v in find("ConfigMap", name)["data"].items()}
        return {**self.s3.environment, **{key: self.here(value) for key, value in data.items()}}

    def command(self, container: dict[str, Any]) -> list[str]:
        words = [*container["command"], *container.get("args", [])]
        where = Path(sys.executable).parent
        return [str(where / words[0]), *map(self.here, words[1:])]

    @contextmanager
    def started(self, container: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
        with open(self.log(container), "ab") as log:
            process = subprocess.Popen(
                self.command(container), env=self.environment(container), stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, container: dict[str, Any]) -> Path:
        return self.folder / f"{container['name']}.log"

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.dashboard}/health", timeout=10) as answer:
                return answer.read() == b"ok"
        except OSError:
            return False


WRITE = """
from clusters import histograms
histograms(100).to_dataset(name="counts").to_zarr("s3://data/hist.zarr", consolidated=False)
"""
COMPARE = """
import xarray as xr
import dshift
from clusters import histograms
found = xr.open_zarr("s3://data/found.zarr", consolidated=False).load()
here = dshift.fit(histograms(100), "auto", valley=0.1)
xr.testing.assert_identical(found.drop_attrs(), here.drop_attrs())
"""


@pytest.mark.slow
def test_the_commands_fit_from_s3_to_s3_over_tls(tmp_path: Path) -> None:
    subprocess.run([str(DEPLOY / "certificates.sh"), str(tmp_path / "tls")], check=True)
    [scheduler] = containers(find("Deployment", "dshift-scheduler"))
    [worker] = containers(find("Deployment", "dshift-worker"))
    [fit] = containers(find("Job", "dshift-fit"))
    with ExitStack() as stack:
        s3 = stack.enter_context(serve(tmp_path))
        written = s3.python(WRITE)
        assert written.returncode == 0, written.stderr
        pods = Pods(tmp_path, s3)
        stack.enter_context(pods.started(scheduler))
        until(pods.healthy, "the scheduler answers its probe")
        stack.enter_context(pods.started(worker))
        done = run(pods.command(fit), pods.environment(fit))
        assert done.returncode == 0, done.stderr + pods.log(worker).read_text()
        assert "result: s3://data/found.zarr" in done.stdout
        assert s3.secret not in done.stdout + done.stderr

        without = {k: v for k, v in pods.environment(fit).items() if "__COMM__" not in k}
        refused(pods.command(fit), without, 2, "needs certificates")
        tcp = {**without, "DSHIFT_SCHEDULER": without["DSHIFT_SCHEDULER"].replace("tls:", "tcp:")}
        refused(pods.command(fit), tcp, 5, "cannot be reached")
        foreign = [str(DEPLOY / "certificates.sh"), str(tmp_path / "foreign")]
        subprocess.run(foreign, check=True)
        others = {k: v.replace("/tls/", "/foreign/") for k, v in pods.environment(fit).items()}
        others |= {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s"}
        refused(pods.command(fit), others, 5, "cannot be reached")

        compared = s3.python(COMPARE)
        assert compared.returncode == 0, compared.stderr


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)


def refused(command: list[str], environment: dict[str, str], code: int, message: str) -> None:
    done = run(command, environment)
    assert done.returncode == code, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("change", [lambda c: c, lambda c: {**c, "DSHIFT_FIT_BANDWITH": "1"}])
def test_the_settings_are_settings_of_fit(change: Callable[..., Any]) -> None:
    settings = change(find("ConfigMap", "dshift-fit")["data"])
    known = {**dict.fromkeys(k for k in os.environ if k.startswith("DSHIFT_")), **settings}
    wrong = "DSHIFT_FIT_BANDWITH" in settings
    # A metric that does not exist ends it once all settings are read.
    done = invoke(["fit", "--metric", "none"], known)
    assert done.exit_code == 2
    assert ("perhaps DSHIFT_FIT_BANDWIDTH?" in done.stderr) == wrong
    assert ("Invalid value for '--metric'" in done.stderr) == (not wrong)
