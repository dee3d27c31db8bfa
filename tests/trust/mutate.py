"""Small errors put into a module one by one: do its tests notice?

`python -m tests.trust.mutate metrics` changes one operator, number, comparison or condition at a
time in a copy of the tree, runs the tests that concern the module, and prints what they let pass.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trust import ROOT

# Quick ones first, which import little: most errors are seen by them.
TESTS = {
    "metrics": ["test_metrics", "test_parts", "test_adversarial", "test_oracle_equality"],
    "edges": ["test_metrics", "test_sources", "test_stack", "test_errors"],
    "modes": ["test_modes", "test_parts", "test_adversarial", "test_oracle_equality"],
    "planning": ["test_planning", "test_parts", "test_errors"],
    "shift": ["test_shift", "test_errors", "test_adversarial", "test_oracle_equality"],
    "arguments": ["test_errors", "test_adversarial"],
    "sources": ["test_errors", "test_sources"],
    "monitor": ["test_monitor", "test_parts"],
    "locks": ["test_locks"],
}
TIMEOUT_SECONDS = 600
LIBRARIES = (
    "hypothesis.extra.numpy",
    "numba",
    "xarray",
    "zarr",
    "dask.array",
    "distributed",
    "scipy.stats",
)

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield what is changed, and the source with that change."""
    tree = ast.parse(source)
    typed = {id(n) for a in ast.walk(tree) for n in _annotations(a)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in typed:
            continue
        for said, change in _changes(node):
            changed = copy.deepcopy(tree)
            twin = next(n for i, n in enumerate(ast.walk(changed)) if i == number)
            change(twin)
            line = getattr(node, "lineno", None)
            if line is not None:
                yield f"line {line}: {said}", ast.unparse(ast.fix_missing_locations(changed))


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if (part := getattr(node, name, None)) is not None:
            yield from ast.walk(part)


def _changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPPED:
        other = SWAPPED[type(node.op)]
        said = f"{ast.unparse(node)}: {type(node.op).__name__} -> {other.__name__}"
        yield said, lambda twin: setattr(twin, "op", other())
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        other = SWAPPED[type(node.ops[0])]
        said = f"{ast.unparse(node)}: {type(node.ops[0]).__name__} -> {other.__name__}"
        yield said, lambda twin: twin.ops.__setitem__(0, other())
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield (
            f"{node.value} -> {node.value + 1}",
            lambda twin: setattr(twin, "value", twin.value + 1),
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield (
            f"{node.value} -> {not node.value}",
            lambda twin: setattr(twin, "value", not twin.value),
        )
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        said = f"if {ast.unparse(node.test)}: negated"
        yield said, lambda twin: setattr(twin, "test", ast.UnaryOp(ast.Not(), twin.test))


def survives(tree: Path, tests: list[str]) -> bool:
    """Whether the tests pass on a changed tree, one test module after the other."""
    return all(_passes(tree, f"tests/{name}.py") for name in tests)


def _passes(tree: Path, path: str) -> bool:
    """Whether a test module passes. One that takes very long is taken as noticed.

    It runs in a fork of this process, which has all libraries at hand, and dshift not yet.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(TIMEOUT_SECONDS)
        os.chdir(tree)
        sys.path[:0] = [str(tree), str(tree / "tests")]
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        # What is not needed to see a test fail: others' plugins, and assertions that explain.
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", path])
        os._exit(int(code))
    return os.waitpid(child, 0)[1] == 0


def _put(tree: Path, module: str, source: str) -> None:
    """Write a module; Python would take two of one second and one size for the same."""
    for compiled in (tree / "dshift" / "__pycache__").glob(f"{module}.*.pyc"):
        compiled.unlink()
    (tree / "dshift" / f"{module}.py").write_text(source)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.mutate")
    parser.add_argument("module", choices=sorted(TESTS))
    parser.add_argument("--limit", type=int, default=None, help="so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", default=None, help="test modules to run instead")
    asked = parser.parse_args()
    source = (ROOT / "dshift" / f"{asked.module}.py").read_text()
    found = list(mutants(source))
    if asked.limit is not None and asked.limit < len(found):
        found = random.Random(asked.seed).sample(found, asked.limit)
    for library in LIBRARIES:
        importlib.import_module(library)
    survivors = []
    with tempfile.TemporaryDirectory(prefix="dshift-mutate-") as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info")
        shutil.copytree(ROOT, tree, ignore=ignored)
        tests = asked.tests or TESTS[asked.module]
        if not survives(tree, tests):
            raise SystemExit("the tests fail on the unchanged tree")
        for number, (said, changed) in enumerate(found, 1):
            _put(tree, asked.module, changed)
            if survives(tree, tests):
                survivors.append(said)
                print(f"{number}/{len(found)}  SURVIVES  {said}", flush=True)
    print(f"{asked.module}: {len(found) - len(survivors)} of {len(found)} were noticed")


if __name__ == "__main__":
    main()
