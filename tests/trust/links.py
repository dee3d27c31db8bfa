"""A network link that can be cut, with a worker behind it: a namespace and a pair of interfaces.

The addresses are of 198.18.0.0/15, which is set aside for tests of networks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid


def why_not() -> str | None:
    """Why links cannot be made here, or None."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2)"
    name = f"dshift{uuid.uuid4().hex[:6]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return None


class Link:
    """A namespace whose only way out is one interface of the host."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.space, outer, self._inner = f"dshift{mark}", f"dso{mark}", f"dsi{mark}"
        net = f"198.18.{int(mark[:2], 16)}"
        self.host, self.inside = f"{net}.1", f"{net}.2"
        _run("ip", "netns", "add", self.space)
        try:
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", self._inner)
            _run("ip", "link", "set", self._inner, "netns", self.space)
            _run("ip", "addr", "add", f"{self.host}/24", "dev", outer)
            _run("ip", "link", "set", outer, "up")
            for rest in (
                ("addr", "add", f"{self.inside}/24", "dev", self._inner),
                ("link", "set", self._inner, "up"),
                ("link", "set", "lo", "up"),
            ):
                _run(*self.within, "ip", *rest)
        except BaseException:
            self.close()
            raise

    @property
    def within(self) -> tuple[str, ...]:
        """What to put before a command to run it behind the link."""
        return "ip", "netns", "exec", self.space

    def cut(self) -> None:
        """Let nothing through. The host's own end stays up: the scheduler listens there."""
        _run(*self.within, "ip", "link", "set", self._inner, "down")

    def mend(self) -> None:
        """Let everything through again."""
        _run(*self.within, "ip", "link", "set", self._inner, "up")

    def close(self) -> None:
        """Take the link away; the interfaces go with the namespace."""
        _run("ip", "netns", "del", self.space)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
