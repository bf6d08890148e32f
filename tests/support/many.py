"""Many replicas of one deployment as processes, each with a name and a way of its own to the store.

Each way is a proxy, so that a replica can be cut off alone. A replica may be killed, paused and resumed, stopped in
order, or join; conditions are waited for by name.
"""

from __future__ import annotations

import contextlib
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Self

from indexer.model import SourceId
from indexer.sharding.rendezvous import share_out
from indexer.store.layout import partition_of
from tests.support.core_service import DEADLINE_S, PAUSE_S
from tests.support.in_trouble import Replica
from tests.support.proxy import ProxyThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.support.proxy import Way

NAMES: Final = ("first", "second", "third")
LEASE_S: Final = 2.0
TIMES: Final = {
    "redis__lease_s": str(LEASE_S),
    "redis__heartbeat_s": "0.2",
    "redis__min_hold_s": "0.5",
    "redis__timeout_ms": "300",
    "staleness__stale_after_s": "2",
    "staleness__score_ttl_s": "60",
    "staleness__retain_s": "600",
    "events__heartbeat_ms": "200",
}
"""Short ones. Whatever stands still for longer than the lease is missed by the others."""
LOG_LINES: Final = 80


class Member(Replica):
    """One replica's process."""

    def partitions(self) -> dict[int, dict[str, Any]]:
        """What it says of every partition."""
        return {view["partition"]: view for view in self.call("GET", "/v1/partitions").json()["partitions"]}


class Cluster:
    """Replicas on the store at that port. A context manager: all that still run must end in order.

    `flags` are every replica's sources; `settings` as in the environment, `section__key`.
    """

    member: type[Member] = Member

    def __init__(
        self,
        port: int,
        flags: Sequence[str],
        *,
        partitions: int,
        names: Sequence[str] = NAMES,
        **settings: str,
    ) -> None:
        self._port = port
        self._flags = list(flags)
        self.partitions = partitions
        self._settings = {**TIMES, **settings, "redis__partitions": str(partitions)}
        self._stack = contextlib.ExitStack()
        self.replicas: dict[str, Member] = {}
        """Those whose processes are there, paused ones, too."""
        self.ways: dict[str, ProxyThread] = {}
        self.paused: set[str] = set()
        self.deadline_s, self.pause_s = DEADLINE_S, PAUSE_S
        """For anything to happen; and how long nobody is asked between two looks."""
        try:
            self.join(*names)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Everybody goes on and has the store, and ends."""
        for name in list(self.paused):
            self.resume(name)
        for way in self.ways.values():
            way.set("pass")
        with self._stack:
            for name in list(self.replicas):
                self._stack.callback(self.stop, name)

    # -- processes ----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[str]:
        """Those that are asked: neither dead nor paused. In the order in which they joined."""
        return [name for name in list(self.replicas) if name not in self.paused]

    def join(self, *names: str, flags: Sequence[str] | None = None, **settings: str) -> None:
        """Start these at the same time; returns once all listen. Other flags, or more settings, for them alone."""
        for name in names:
            self._lay_way(name)
        with ThreadPoolExecutor(len(names)) as pool:
            started = [pool.submit(self._start, name, flags, settings) for name in names]
        for name, start in zip(names, started, strict=True):
            if start.exception() is None:
                self.replicas[name] = start.result()
        for start in started:
            start.result()

    def _lay_way(self, name: str) -> None:
        """To the store, of one that will join."""
        if name not in self.ways:
            self.ways[name] = self._stack.enter_context(ProxyThread(self._port))

    def _start(self, name: str, flags: Sequence[str] | None, settings: dict[str, str]) -> Member:
        environment = {**self._settings, **settings, "redis__url": self.ways[name].url, "redis__replica": name}
        member = self.member(self._flags if flags is None else flags, **environment)
        member.name = name
        return member

    def kill(self, name: str) -> None:
        """SIGKILL, also of a paused one."""
        self.paused.discard(name)
        self.replicas.pop(name).kill()

    def stop(self, name: str) -> None:
        """SIGTERM; it must end in order and have nothing to complain of. It is not asked any more."""
        self.replicas.pop(name).__exit__()

    def pause(self, name: str) -> None:
        """SIGSTOP: its connections stand, and it does nothing."""
        self.paused.add(name)
        self.replicas[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.replicas[name].send_signal(signal.SIGCONT)
        self.paused.discard(name)

    def set_ways(self, way: Way, *names: str) -> None:
        """What becomes of the way to the store, of these or of all."""
        for name in names or self.ways:
            self.ways[name].set(way)

    # -- who has what -------------------------------------------------------------------------------------------------

    def partition(self, pod: str) -> int:
        """In which a pod's rank 0 lies."""
        return partition_of(SourceId(pod, 0), self.partitions)

    def owners(self, *without: str) -> dict[int, str]:
        """By partition, where exactly one of those that run says to be its owner. They are asked in turn."""
        claims: dict[int, list[str]] = {number: [] for number in range(self.partitions)}
        for name in self.others(*without):
            for number, view in self.replicas[name].partitions().items():
                if view["role"] == "owner":
                    claims[number].append(name)
        return {number: names[0] for number, names in claims.items() if len(names) == 1}

    def owner_of(self, pod: str) -> Member:
        """The replica that collects from a pod."""
        return self.replicas[self.owners()[self.partition(pod)]]

    def others(self, *names: str) -> list[str]:
        """Those that run, without these."""
        return [name for name in self.running if name not in names]

    def is_as_planned(self, members: Iterable[str]) -> bool:
        """Whether each partition is owned and listened along to by whom the members' names say, and all know the owner.

        A standby follows the partition by then, so that its owner may die.
        """
        plan = share_out(self.partitions, members)
        views = {name: self.replicas[name].partitions() for name in self.running}
        for number, share in enumerate(plan):
            for name, seen in views.items():
                view = seen.get(number)
                if view is None or view["owner"] != share.owner:
                    return False
                wanted = {share.owner: "owner", share.standby: "standby"}.get(name, "follower")
                if (view["role"], view["state"]) != (wanted, "live"):
                    return False
        return True

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait_for(self, look: Callable[[], bool], what: str, why: Callable[[], str] = str) -> None:
        """Return when it holds; fail by its name at the deadline, and say who has what, and `why` it does not hold."""
        ends_at = time.monotonic() + self.deadline_s
        while not look():
            assert time.monotonic() < ends_at, f"waited for {what} {why()}; {self.told()}"
            time.sleep(self.pause_s)

    def wait_settled(self, members: Iterable[str] | None = None) -> None:
        """Until all is owned, and listened along to, as planned for those that run (or for these)."""
        planned = list(self.running if members is None else members)
        self.wait_for(lambda: self.is_as_planned(planned), f"{planned} to share the partitions as planned")

    def wait_taken_from(self, *gone: str) -> None:
        """Until each partition is owned by somebody else, whatever these may say themselves."""
        self.wait_for(lambda: len(self.owners(*gone)) == self.partitions, f"all to be taken over from {gone}")

    def told(self) -> str:
        """What those that run say of each partition (partition, role, state, owner), and the end of their logs."""
        lines = []
        for name in self.running:
            views = self.replicas[name].partitions()
            said = " ".join(f"{number}:{v['role']}/{v['state']}/{v['owner']}" for number, v in views.items())
            lines += [f"{name}: {said}", *self.replicas[name].log().splitlines()[-LOG_LINES:]]
        return "\n".join(lines)
