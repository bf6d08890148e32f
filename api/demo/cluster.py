"""The demo's replicas: three processes beside one store, asked in turn; one of them may be away.

What is done to them, `faults` decides; here it is done, by signals, and what they say of one another is read. Talks to
them by HTTP.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Literal, Self

import msgspec

from api.cli.client import ServiceClient
from api.demo.facts import Every, SourceList
from api.demo.service import LEASE_S, ServiceProcess
from api.demo.sharing import Sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from api.demo.facts import SourceFacts
    from api.demo.faults import Kind
    from api.demo.service import Ports

NAMES: Final = ("r1", "r2", "r3")
LOOK_EVERY_S: Final = 0.25

Standing = Literal["up", "killed", "paused", "starting"]


class Replica:
    """One of them, by the name under which it stands in the store. `process` listens."""

    def __init__(self, name: str, process: ServiceProcess, timeout_s: float) -> None:
        self.name, self.process = name, process
        self.client = ServiceClient(process.url, timeout_s=timeout_s)
        self.standing: Standing = "up"


class Replicas:
    """All of them, each on the ports after the last one's, or with 0 on free ones. A context manager.

    Entry raises `ServiceFailed`. Nothing is left of them afterwards.
    """

    listeners: Final = 2
    """Of each engine, where all is well: its owner and its standby."""

    def __init__(
        self, sources: Sequence[str], store_url: str, ports: Ports, *, timeout_s: float, now: Callable[[], float]
    ) -> None:
        self.lease_s = LEASE_S
        self.sharing = Sharing()
        self.sources: Mapping[str, SourceFacts] = {}
        self.all: list[Replica] = []
        self._processes = [
            ServiceProcess(ports.after(index), sources, store_url, name) for index, name in enumerate(NAMES)
        ]
        self._timeout_s = timeout_s
        self._looking = Every(LOOK_EVERY_S, now)
        self._turn = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            starting.callback(self._close)
            for name, process in zip(NAMES, self._processes, strict=True):
                self.all.append(Replica(name, process.__enter__(), self._timeout_s))
            starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for each in self._processes:  # together: each one takes its time
            each.tell_to_end()
        for each in self._processes:
            each.close()

    def clients(self) -> Sequence[ServiceClient]:
        """Of those that can be asked."""
        return [each.client for each in self.all if each.standing == "up"]

    def is_calm(self) -> bool:
        """See `Asked.is_calm`."""
        return self.is_even()

    def check(self) -> None:
        """Raise `ServiceFailed` if one has ended by itself."""
        for each in self.all:
            if each.standing != "killed":
                each.process.check()

    def look(self) -> None:
        """Ask one of them, in turn, who owns what. Now and then; in between nothing is done."""
        clients = self.clients()
        if not self._looking.due() or not clients:
            return
        self._turn += 1
        answer = clients[self._turn % len(clients)].request("GET", "/v1/partitions")
        self.sharing = msgspec.json.decode(answer, type=Sharing)

    # -- what `faults` wants -------------------------------------------------------------------------------------------

    def busiest(self, *, other_than: str) -> str:
        """The owner of most engines, of equal ones that with most partitions."""
        engines = [facts.owner for facts in self.sources.values()]
        names = [name for name in NAMES if name != other_than]
        return max(names, key=lambda name: (engines.count(name), self.sharing.owned(name)))

    def take(self, replica: str, kind: Kind) -> int:
        """See `faults.Cluster`."""
        taken = self._named(replica)
        if kind == "killed":
            taken.process.kill()
        else:
            taken.process.pause()
        taken.standing = kind
        return self.sharing.owned(replica)

    def bring_back(self, replica: str) -> None:
        """See `faults.Cluster`."""
        away = self._named(replica)
        if away.standing == "killed":
            away.process.start()
            away.standing = "starting"
        else:
            away.process.resume()
            away.standing = "up"

    def is_back(self, replica: str) -> bool:
        """See `faults.Cluster`."""
        coming = self._named(replica)
        if coming.standing == "starting" and coming.process.listens():
            coming.standing = "up"
        return coming.standing == "up"

    def others_own_all(self, replica: str) -> bool:
        """As the one says that was asked last."""
        return self.sharing.is_without(replica)

    def is_even(self) -> bool:
        """As the one says that was asked last; with one away it is not."""
        return all(each.standing == "up" for each in self.all) and self.sharing.is_even(NAMES)

    def first_words(self, replica: str, engines: Sequence[str]) -> str:
        """Their states."""
        answer = self._named(replica).client.request("GET", "/v1/sources")
        said = {facts.pod: facts.state for facts in msgspec.json.decode(answer, type=SourceList).sources}
        return ", ".join(f"{pod} {said.get(pod, 'unknown')}" for pod in engines)

    def _named(self, name: str) -> Replica:
        return next(each for each in self.all if each.name == name)
