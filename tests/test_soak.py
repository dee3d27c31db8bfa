"""A minute of the soak: see tests/trust/soak.py."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import dshift
from tests.trust import soak


@pytest.mark.slow
def test_a_cluster_under_attack_gives_the_same_bits() -> None:
    command = [sys.executable, "-m", "tests.trust.soak", "--minutes", "1", "--samples", "10000"]
    root = Path(__file__).parents[1]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=root, **pipes) as run:
        try:
            said = run.communicate(timeout=1200)[0]
        except subprocess.TimeoutExpired:
            # As Ctrl-C: it ends the processes that it started.
            run.send_signal(signal.SIGINT)
            said = run.communicate()[0]
    assert run.returncode == 0, said
    assert ", 0 differed" in said


def test_a_fit_that_a_restart_ended_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted = "the cluster of tcp://a:1 was restarted, or its tasks were cancelled"
    ends: list[Any] = [dshift.ClusterLost(restarted), dshift.StoreFailed("the disk is full"), None]

    def fit(*args: Any) -> xr.Dataset:
        error = ends.pop(0)
        if error is not None:
            raise error
        return xr.Dataset()

    monkeypatch.setattr(soak, "Client", lambda **how: contextlib.nullcontext())
    monkeypatch.setattr(soak, "fit", fit)
    losses: Counter[str] = Counter()
    call = soak.Site(tmp_path, None), "data", tmp_path, losses
    with pytest.raises(dshift.StoreFailed):
        soak.fit_until_done(*call)
    assert losses == {"ClusterLost": 1}
    assert soak.fit_until_done(*call).identical(xr.Dataset())
