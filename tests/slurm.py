"""A real SLURM for tests: controller and two virtual nodes on loopback, without systemd.

Everything it needs, munge's key and socket included, is in one folder, and every port is free when
it starts: nothing of it is left, and another one can run beside it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from clusters import until

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "scancel", "squeue", "sinfo", "scontrol")
JOB_SECONDS = 400  # for a job to end, on a busy machine that compiles
REQUIRE = "DSHIFT_REQUIRE_SLURM"
# Virtual nodes know no cgroups, and are on one host: one slurmd each, with a port of its own.
CONF = """
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmctldTimeout=120
SlurmdTimeout=120
InactiveLimit=0
KillWait=10
MinJobAge=600
Waittime=0
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000
PartitionName=debug Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def search_path() -> str:
    # Debian keeps daemons where only root looks.
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def refuse_or_skip() -> None:
    """Skip where SLURM cannot run, with the reason; fail where it must."""
    missing = [p for p in (*DAEMONS, *COMMANDS) if shutil.which(p, path=search_path()) is None]
    problem = ""
    if os.getuid() != 0:
        problem = "a SLURM of its own needs root"
    elif missing:
        problem = (
            f"{', '.join(missing)} not found: apt-get install --no-install-recommends "
            "munge slurmctld slurmd slurm-client"
        )
    if problem and os.environ.get(REQUIRE):
        pytest.fail(f"{REQUIRE} is set, and {problem}")
    if problem:
        pytest.skip(problem)


def free_ports(n: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


@dataclass
class Slurm:
    """A cluster of the nodes n1 and n2, with two CPUs each."""

    folder: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What commands need to find this cluster, and jobs to find this Python."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "DSHIFT_"))}
        return {
            **inherited,
            "PATH": search_path(),
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "DSHIFT_ENV": sys.prefix,
        }

    def run(self, *words: str, cwd: Path | None = None, **settings: str) -> str:
        """Return what a command of SLURM prints."""
        done = subprocess.run(
            words,
            cwd=cwd or self.folder,
            env={**self.environment, **settings},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: str, cwd: Path, **settings: str) -> str:
        """Submit a job, and return its number."""
        return self.run("sbatch", "--parsable", *words, cwd=cwd, **settings).strip().split(";")[0]

    def job(self, number: str) -> dict[str, str]:
        """Return what SLURM knows of a job."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def jobs(self) -> list[str]:
        """Return the numbers of the jobs that wait, run or are ending."""
        return self.run("squeue", "--noheader", "--format=%i").split()

    def wait(self, number: str) -> dict[str, str]:
        """Wait until a job is over, processes and all."""
        until(lambda: number not in self.jobs(), f"job {number} ends", JOB_SECONDS)
        return self.job(number)

    def _daemon(self, *words: str) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            self.daemons.append(
                subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)
            )

    def _idle(self) -> bool:
        for daemon in self.daemons:
            said = (self.folder / "daemons.log").read_text(errors="replace")
            assert daemon.poll() is None, f"{daemon.args} ended: {said[-3000:]}"
        words = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        found = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return found.stdout.strip() == "2"

    def __enter__(self) -> Slurm:
        folder = self.folder
        for name in ("state", "spool-n1", "spool-n2"):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, ports=free_ports(3)))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        files = [
            f"--{kind}={folder}/munge.{end}"
            for kind, end in (
                ("socket", "socket"),
                ("key-file", "key"),
                ("pid-file", "pid"),
                ("log-file", "log"),
                ("seed-file", "seed"),
            )
        ]
        try:
            # Forced, since munge wants folders that all may enter, and this one is private.
            self._daemon("munged", "--foreground", "--force", *files)
            until((folder / "munge.socket").exists, "munged listens")
            self._daemon("slurmctld", "-D", "-c")
            self._daemon("slurmd", "-D", "-N", "n1")
            self._daemon("slurmd", "-D", "-N", "n2")
            until(self._idle, "both nodes are idle")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if len(self.daemons) == 4 and self.daemons[1].poll() is None:
            for number in self.jobs():
                subprocess.run(["scancel", number], env=self.environment, capture_output=True)
            deadline = time.monotonic() + 60
            while self.jobs() and time.monotonic() < deadline:
                time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
