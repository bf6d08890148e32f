"""A network of the tests' own: places that are network namespaces, joined by a bridge in another one.

Nothing of it is seen or reached from the machine's own network, nor reaches it. What of it is left by a run that was
killed goes when the next one begins. Needs root, `ip` and `iptables`; `missing` says what is not there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from tests.support.redis_servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "kvi-test-"
"""Of the names of all namespaces that are made here, and of no others."""
NETWORK: Final = "10.77.0."
DEADLINE_S: Final = 30.0
_SWITCH: Final = f"{PREFIX}switch"
_BRIDGE: Final = "bridge"
_NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_LOCK: Final = Path(tempfile.gettempdir()) / "kvindexer-netns.lock"
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

Direction = Literal["both", "in", "out"]
"""Of packets, as the place sees them."""


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert 0 == done.returncode, f"{' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout


def missing() -> str:
    """Why there can be no such network on this machine; empty where there can."""
    if os.geteuid():
        return "network namespaces need root"
    try:
        with Net() as net:
            net.place("probe").drop(net.place("other"))
    except (OSError, AssertionError) as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


class Place:
    """One namespace with an address of its own."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.namespace = f"{PREFIX}{name}"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is there until the block ends. What it opens, and whom it starts, stays there."""
        with (
            Path("/proc/thread-self/ns/net").open("rb") as home,
            Path(f"/run/netns/{self.namespace}").open("rb") as there,
        ):
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def drop(self, *peers: Place, direction: Direction = "both") -> None:
        """Packets between here and these are lost from now on, without a word: connections stand and say nothing."""
        for peer in peers:
            if direction in {"both", "in"}:
                self._iptables("-A", "INPUT", "-s", peer.address, "-j", "DROP")
            if direction in {"both", "out"}:
                self._iptables("-A", "OUTPUT", "-d", peer.address, "-j", "DROP")

    def mend(self) -> None:
        """Nothing is lost any more, and the cable is in."""
        self._iptables("-F")
        self._cable("up")

    def unplug(self) -> None:
        """Its cable is pulled, on the side of the bridge: nobody here is told."""
        self._cable("down")

    def _cable(self, state: str) -> None:
        _run("ip", "-n", _SWITCH, "link", "set", "dev", self.name, state)

    def _iptables(self, *words: str) -> None:
        _run("ip", "netns", "exec", self.namespace, "iptables", "-w", *words)


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _NEW_NETWORK):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Net:
    """A context manager: whatever still runs in its places is killed at the end. One at a time on a machine."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._lock: Any = None

    def __enter__(self) -> Self:
        self._lock = _LOCK.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            _clear_away()
            _run("ip", "netns", "add", _SWITCH)
            _run("ip", "-n", _SWITCH, "link", "add", "name", _BRIDGE, "type", "bridge")
            _run("ip", "-n", _SWITCH, "link", "set", _BRIDGE, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            _clear_away()
        finally:
            self._lock.close()

    def place(self, name: str) -> Place:
        """Another one."""
        place = Place(name, f"{NETWORK}{len(self.places) + 1}")
        here = ("ip", "-n", place.namespace)
        _run("ip", "netns", "add", place.namespace)
        _run("ip", "link", "add", "name", "eth0", "netns", place.namespace, "type", "veth",
             "peer", "name", name, "netns", _SWITCH)  # fmt: skip
        _run("ip", "-n", _SWITCH, "link", "set", "dev", name, "master", _BRIDGE, "up")
        _run(*here, "address", "add", f"{place.address}/24", "dev", "eth0")
        _run(*here, "link", "set", "lo", "up")
        _run(*here, "link", "set", "eth0", "up")
        self.places[name] = place
        return place


def _clear_away() -> None:
    """Every namespace of ours, and whoever is in it: of this run or of one that was killed."""
    ours = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.startswith(PREFIX)]
    for name in ours:
        for pid in map(int, _run("ip", "netns", "pids", name).split()):
            if pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_for(lambda name=name: not _others_in(name), f"whoever is in {name} to end")
        _run("ip", "netns", "delete", name)


def _others_in(name: str) -> list[str]:
    return [pid for pid in _run("ip", "netns", "pids", name).split() if int(pid) != os.getpid()]


if __name__ == "__main__":
    print(missing())
