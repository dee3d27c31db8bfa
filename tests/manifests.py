"""Reads and renders deploy/kubernetes, and checks objects against the published schemas, strictly:
a field that a schema does not know is an error, where an API server would drop it in silence.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from clusters import TESTS

DEPLOY = TESTS.parent / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
VERSION = "1.33"
DASK_GROUP = "kubernetes.dask.org/"
KUSTOMIZATION_FIELDS = {"apiVersion", "kind", "resources", "images", "replicas", "patches"}


def load(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


# ---------------------------------------------------------------- kustomize


def render(folder: Path) -> list[dict[str, Any]]:
    """Return what `kubectl kustomize` would, for the few fields that we use."""
    [spec] = load(folder / "kustomization.yaml")
    assert set(spec) <= KUSTOMIZATION_FIELDS, f"unknown fields in {folder}: {sorted(spec)}"
    assert spec["kind"] == "Kustomization"
    objects: list[dict[str, Any]] = []
    for name in spec["resources"]:
        path = folder / name
        objects += render(path) if path.is_dir() else load(path)
    for patch in spec.get("patches", []):
        assert set(patch) == {"path"}
        for change in load(folder / patch["path"]):
            _merge(_find(objects, change["kind"], change["metadata"]["name"]), change)
    for replicas in spec.get("replicas", []):
        found = _find(objects, "Deployment", replicas["name"])
        found["spec"]["replicas"] = replicas["count"]
    for image in spec.get("images", []):
        assert set(image) == {"name", "newName", "newTag"}
        used = [c for each in objects for c in containers(each) if c["image"].startswith("dshift:")]
        assert used, f"no image is called {image['name']}"
        for container in used:
            container["image"] = f"{image['newName']}:{image['newTag']}"
    return objects


def _find(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [found] = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def _merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """Merge as a strategic patch does: dicts by key, lists of named things by name."""
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                [same] = [each for each in target[key] if each["name"] == item["name"]]
                _merge(same, item)
        else:
            target[key] = copy.deepcopy(value)


# ---------------------------------------------------------------- schemas


def check(document: dict[str, Any]) -> None:
    """Raise unless an object is as its schema says, and holds nothing else."""
    if document["apiVersion"].startswith(DASK_GROUP):
        jsonschema.Draft202012Validator(_dask_schema(document["kind"])).validate(document)
        for spec in pod_specs(document):
            # As the operator wraps it; this schema knows more than the one that it ships.
            check(_deployment(spec))
        return
    kubernetes_validate.validate(document, VERSION, strict=True)


def _deployment(pod_spec: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in pod_spec.items() if key != "restartPolicy"}
    labels = {"dask.org/component": "any"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "wrapped", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _dask_schema(kind: str) -> dict[str, Any]:
    # Found, not imported: that would start to read this machine's Kubernetes settings.
    package = importlib.util.find_spec("dask_kubernetes")
    assert package is not None
    assert package.submodule_search_locations is not None
    root = Path(package.submodule_search_locations[0]) / "operator" / "deployment"
    for path in sorted(root.rglob("crds/*.yaml")):
        for crd in load(path):
            if crd["kind"] == "CustomResourceDefinition" and crd["spec"]["names"]["kind"] == kind:
                [version] = [v for v in crd["spec"]["versions"] if v["storage"]]
                return _whole(version["schema"]["openAPIV3Schema"])
    raise AssertionError(f"dask-kubernetes has no {kind}")


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Add what every object has, and the API server checks itself."""
    strict = _strict(schema)
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    metadata = {"name": {"type": "string"}, "labels": texts, "annotations": texts}
    strict["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {
            "type": "object",
            "properties": metadata,
            "required": ["name"],
            "additionalProperties": False,
        },
    }
    return strict


def _strict(schema: Any) -> Any:
    """Translate Kubernetes' kind of OpenAPI to JSON schema in which unknown fields are errors."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    own = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    own = {
        key: {name: _strict(each) for name, each in value.items()}
        if key == "properties"
        else _strict(value)
        for key, value in own.items()
        if key not in ("nullable", "format", "default", "description")
    }
    if schema.get("x-kubernetes-int-or-string"):
        own = {"type": ["integer", "string"]}
    if schema.get("nullable") and "type" in own:
        own["type"] = [own["type"], "null"] if isinstance(own["type"], str) else own["type"]
    free = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in own
    if "properties" in own and not free:
        own["additionalProperties"] = False
    return own


# ---------------------------------------------------------------- what objects hold


def pod_specs(document: Any) -> Iterator[dict[str, Any]]:
    """Yield every pod's specification in an object."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for value in document.values():
            yield from pod_specs(value)


def containers(document: Any) -> Iterator[dict[str, Any]]:
    """Yield every container in an object."""
    for spec in pod_specs(document):
        yield from spec["containers"]
