"""A minute of the soak: see tests/trust/soak.py."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


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
