"""The two courses that a demo takes: one service, with a store killed on the way, or three replicas with their faults.

What is done next, and what is told of it in plain words; printing and waiting are the command's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from api.demo.faults import Faults
from api.demo.replica_table import replica_table
from api.demo.screen import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from api.demo.cluster import Replicas
    from api.demo.service import ServiceProcess
    from api.demo.show import Show
    from api.demo.store import StoreProcess


class Course(Protocol):
    """One of them."""

    show: Show
    url: str
    """Of the service, or of the first replica."""

    def step(self) -> None:
        """Do what is due now. Raises `CommandFailed` where no answer comes."""
        ...

    def check(self) -> None:
        """Raise `ServiceFailed` where a process has ended by itself."""
        ...

    def picture(self, width: int) -> RenderableType:
        """For a terminal of so many columns."""
        ...

    def said(self) -> Sequence[str]:
        """What happened to processes so far, a sentence each."""
        ...

    def states(self) -> str:
        """How it stands, in one line."""
        ...

    def introduction(self) -> Sequence[str]:
        """What a person is told before it begins."""
        ...

    def commands(self) -> Sequence[str]:
        """To try from another terminal."""
        ...

    def rpc_addresses(self) -> Sequence[str]:
        """Where gRPC is spoken, `host:port` each."""
        ...

    def outcome(self) -> tuple[Sequence[str], bool]:
        """Of what was done to processes: a sentence each, and whether all went well."""
        ...


class OneService:
    """A service; with a store it is killed and started again."""

    def __init__(self, show: Show, service: ServiceProcess, store: StoreProcess | None, replay_steps: int) -> None:
        self.show, self.url = show, service.url
        self._service, self._store, self._replay_steps = service, store, replay_steps

    def step(self) -> None:
        """See `Course`."""
        self.show.step()

    def check(self) -> None:
        """See `Course`."""
        self._service.check()

    def picture(self, width: int) -> RenderableType:
        """See `Course`."""
        return draw(self.show, self.url, width, said=None if self._store is None else self.show.said)

    def said(self) -> Sequence[str]:
        """See `Course`."""
        return self.show.said

    def states(self) -> str:
        """See `Course`."""
        return "no service" if self.show.away else engine_states(self.show)

    def introduction(self) -> Sequence[str]:
        """See `Course`."""
        if self._store is None:
            return ()
        return (
            f"The service keeps what it knows in a store, {self._store.program} at {self._store.url}.",
            f"On the way it is killed and started again. The engines replay their last {self._replay_steps} batches:",
            "what is older comes out of the store, or not at all.\n",
        )

    def commands(self) -> Sequence[str]:
        """See `Course`."""
        sources = f"kvindexer sources --url {self.url}"
        return (sources,) if self._store is None else (sources, f"kvindexer partitions --url {self.url}")

    def rpc_addresses(self) -> Sequence[str]:
        """See `Course`."""
        return [self._service.rpc] if self._service.rpc else []

    def outcome(self) -> tuple[Sequence[str], bool]:
        """See `Course`."""
        judged = [outage for outage in self.show.outages if outage.kept is not None]
        if not judged:
            return (), True
        anew = sum(not outage.kept for outage in judged)
        how = f"{anew} times engines began anew" if anew else "each time every engine went on where it stood"
        return (f"the service was killed and started again {len(judged)} times: {how}",), not anew


class ManyReplicas:
    """Three replicas beside a store; one is killed and started again, one is paused and goes on."""

    def __init__(self, show: Show, replicas: Replicas, store: StoreProcess) -> None:
        self.show, self.url = show, replicas.all[0].client.url
        self._replicas, self._store = replicas, store
        self._faults = Faults(replicas, lambda: show.sources, time.monotonic)

    def step(self) -> None:
        """See `Course`."""
        self.show.step()
        self._replicas.sources = self.show.sources
        self._replicas.look()
        may_begin = self.show.phase == "playing" and self.show.is_listened and self.show.all_known
        self._faults.step(all_live=self.show.all_live, may_begin=may_begin)

    def check(self) -> None:
        """See `Course`."""
        self._replicas.check()

    def picture(self, width: int) -> RenderableType:
        """See `Course`."""
        table = replica_table(self._replicas, self.show.answers, width)
        return draw(self.show, self.url, width, replicas=table, said=self._faults.said)

    def said(self) -> Sequence[str]:
        """See `Course`."""
        return self._faults.said

    def states(self) -> str:
        """See `Course`."""
        sharing = self._replicas.sharing
        replicas = ", ".join(
            f"{each.name} {each.standing} owns {sharing.owned(each.name)} stands by {sharing.stood_by(each.name)}"
            for each in self._replicas.all
        )
        return f"{replicas}  {engine_states(self.show)}"

    def introduction(self) -> Sequence[str]:
        """See `Course`."""
        return (
            f"Three replicas share a store, {self._store.program} at {self._store.url}, and are asked in turn.",
            "On the way one is killed and started again, and one is paused beyond its lease and goes on. The engines",
            "replay nothing: what the one that falls had not written yet, its standby has received, too.\n",
        )

    def commands(self) -> Sequence[str]:
        """See `Course`."""
        each = [f"kvindexer sources --url {replica.client.url}" for replica in self._replicas.all]
        return (*each, f"kvindexer partitions --url {self.url}")

    def rpc_addresses(self) -> Sequence[str]:
        """See `Course`."""
        return [replica.process.rpc for replica in self._replicas.all if replica.process.rpc]

    def outcome(self) -> tuple[Sequence[str], bool]:
        """See `Course`."""
        done = self._faults.done
        if not done:
            return (), True
        killed = sum(fault.kind == "killed" for fault in done)
        lost = sum(not fault.kept for fault in done)
        how = f"{lost} times something was lost" if lost else "each time every engine went on where it stood"
        told = f"replicas killed: {killed}, paused: {len(done) - killed}; {how}"
        return (told,), not lost


def engine_states(show: Show) -> str:
    """Every engine's, with its bound."""
    return ", ".join(f"{pod} {facts.state} {facts.bound}" for pod, facts in show.sources.items())
