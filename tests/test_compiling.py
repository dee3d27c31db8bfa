"""The second process that compiles a part of the first fit: when it starts, what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import xarray as xr

import dshift
from dshift import compiling, groups
from dshift.stage import Stage, set_stage
from dshift.threads import settings

COUNTS = np.random.default_rng(0).integers(0, 9, (40, 7)) + 1


def python(program: str, cache: Path | None = None) -> str:
    """Return what a program says in a process of its own, with a compilation cache of its own."""
    env = dict(os.environ) if cache is None else {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def stub(folder: Path, line: str) -> str:
    """Return a program that writes its process number into a file, and then does one line."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\necho $$ > {folder}/started\n{line}\n")
    program.chmod(0o755)
    return str(program)


def fit(threads: int = 2) -> xr.Dataset:
    with settings(threads=threads):
        return dshift.fit(COUNTS, bandwidth=1.0, progress=False)


def test_medians_are_compiled_for_the_types_of_a_fit() -> None:
    fit()
    held, nest, _, _, points = groups.step_points.signatures[0]
    parts = dict(zip(nest.fields, nest.types, strict=True))
    integer = numba.int64
    expected = (
        held,
        parts["chain"],
        integer,
        parts["batch"],
        parts["lanes"],
        integer,
        integer,
        points,
    )
    assert compiling.types_of_medians() == expected


def test_it_is_known_whether_steps_are_compiled(tmp_path: Path) -> None:
    ask = "from dshift import compiling; print(compiling.is_compiled())"
    assert python(ask, tmp_path) == "False"
    fit()
    assert compiling.is_compiled()
    assert python(ask) == "True"


@pytest.mark.parametrize("fails", [False, True])
def test_a_helper_ends_with_the_fit(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"

    def set_stage_later(*args: Any, **options: Any) -> Stage:
        while not (started.exists() and started.read_text().endswith("\n")):
            time.sleep(0.01)
        os.kill(int(started.read_text()), 0)  # it is there
        if fails:
            raise MemoryError
        return set_stage(*args, **options)

    monkeypatch.setattr(compiling, "is_compiled", lambda: False)
    monkeypatch.setattr(sys, "executable", stub(tmp_path, "exec sleep 600"))
    monkeypatch.setattr("dshift.threads.set_stage", set_stage_later)
    with pytest.raises(MemoryError) if fails else nullcontext():
        fit()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_a_fit_needs_no_helper(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fit()
    monkeypatch.setattr(compiling, "is_compiled", lambda: False)
    monkeypatch.setattr(sys, "executable", program)
    assert fit().identical(expected)


def test_one_thread_has_no_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "is_compiled", lambda: False)
    monkeypatch.setattr(sys, "executable", stub(tmp_path, "exit 0"))
    fit(threads=1)
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
def test_a_fit_finds_what_the_helper_compiled(tmp_path: Path) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-P", "-m", "dshift.compiling"], env=env, check=True)
    found = python(
        "import numpy as np, dshift; from dshift import groups, lanes;"
        "dshift.fit(np.eye(9) + 1, bandwidth=1.0, progress=False);"
        "medians, steps = lanes.take_medians.stats, groups.step_points.stats;"
        "print(medians.cache_hits.total(), steps.cache_misses.total())",
        tmp_path,
    )
    assert found == "1 1"
