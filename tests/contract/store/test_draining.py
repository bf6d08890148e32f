"""A drain is given at any replica: marked where it can be done, refused where nobody could take over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from indexer.clock import SystemClock
from indexer.errors import DrainRefusedError, ReplicaUnknownError
from indexer.partitions.draining import Draining
from indexer.sharding.members import Member, Members, Reading
from indexer.store.layout import replicas_key
from indexer.store.members import beat
from schemas.rest import ReplicaDrained
from tests.support.owning import with_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.store.client import Client
    from tests.support.redis_servers import Store

KEY = replicas_key("kvi")
TIMES = {"retain_ms": 600_000, "forget_ms": 600_000}
TIMEOUT_S = 30.0
A = Member(name="a", process="pa", owned={0: 0, 3: 5})
B = Member(name="b", process="pb", owned={1: 0})
C = Member(name="c", process="pc")


class Beating:
    """Replica `me`, which beats when it is asked to; `before` is called then."""

    def __init__(self, client: Client, me: Member) -> None:
        self._client = client
        self._clock = SystemClock()
        self.me = me
        self.members = Members(me.name, timeout_s=TIMEOUT_S)
        self.before: Callable[[], Any] = lambda: None
        self.draining = Draining(client, KEY, self.members, self._beat, clock=self._clock, retain_ms=TIMES["retain_ms"])

    async def _beat(self) -> None:
        told = self.before()
        for other in () if told is None else told:
            await beat(self._client, KEY, other, **TIMES)
        self.members.heard(await beat(self._client, KEY, self.me, **TIMES), self._clock.now())


async def beating(client: Client, me: Member, *others: Member) -> Beating:
    """It, and what others told before."""
    for other in others:
        await beat(client, KEY, other, **TIMES)
    return Beating(client, me)


def marks(store: Store) -> dict[bytes, bytes]:
    """Replica → process."""
    return {field: value for field, value in store.look.hgetall(KEY).items() if field.startswith(b"d:")}


def test_who_owns_nothing_any_more_is_drained(store: Store) -> None:
    """The answer waits until the last partition is handed over. Once more, it is the same."""

    async def body(client: Client) -> None:
        here = await beating(client, A, B)
        here.before = lambda: [msgspec.structs.replace(B, owned={})] if marks(store) else None
        for _ in range(2):
            drained = await here.draining.drain("b")
            assert ReplicaDrained(name="b", draining=True, owned=0, effect="done") == drained
        assert {b"d:b": b"pb"} == marks(store)

    with_client(store, body)


def test_who_takes_longer_is_told_to_be_under_way(store: Store) -> None:
    """`accepted`, with what is left; taken back, it goes on owning."""

    async def body(client: Client) -> None:
        here = await beating(client, A, B)
        assert ReplicaDrained(name="a", draining=True, owned=2, effect="accepted") == await here.draining.drain("a")
        assert {b"d:a": b"pa"} == marks(store)
        assert ReplicaDrained(name="a", draining=False, owned=2, effect="done") == await here.draining.undrain("a")
        assert {} == marks(store)

    with_client(store, body)


@pytest.mark.parametrize(
    "others", [[], [Member(name="b", process="pb", collects=False)], [Member(name="b", process="pb", leaving=True)]]
)
def test_the_last_one_is_not_drained(store: Store, others: list[Member]) -> None:
    """Nobody else is there, or none that may own."""

    async def body(client: Client) -> None:
        here = await beating(client, A, *others)
        with pytest.raises(DrainRefusedError, match="nobody could take over from a"):
            await here.draining.drain("a")
        assert {} == marks(store)

    with_client(store, body)


def test_the_last_two_are_not_drained_both(store: Store) -> None:
    """Marked at the same time at two replicas, neither knowing of the other's: one mark is taken back at least."""

    async def body(client: Client) -> None:
        here = await beating(client, A, B)
        there = await beating(client, B, A)
        async with asyncio.TaskGroup() as tasks:
            drains = [
                tasks.create_task(_outcome(each.draining.drain(name))) for each, name in ((here, "b"), (there, "a"))
            ]
        assert 1 >= sum(drain.result() == "drained" for drain in drains)
        assert 1 >= len(marks(store))

    with_client(store, body)


async def _outcome(drain: Any) -> str:  # noqa: ANN401  a coroutine
    try:
        await drain
    except DrainRefusedError:
        return "refused"
    return "drained"


def test_who_owns_nothing_by_nature_is_done_at_once(store: Store) -> None:
    """One that only looks up, and one that stops: no mark."""

    async def body(client: Client) -> None:
        lookup = Member(name="l", process="pl", collects=False)
        leaving = msgspec.structs.replace(B, leaving=True, owned={})
        here = await beating(client, A, lookup, leaving)
        for name in ("l", "b"):
            told = ReplicaDrained(name=name, draining=False, owned=0, effect="done")
            assert told == await here.draining.drain(name)
        assert {} == marks(store)

    with_client(store, body)


def test_who_stops_and_still_owns_is_told_to_be_under_way(store: Store) -> None:
    """It gives up what it owns already, without a mark: not done before it did."""

    async def body(client: Client) -> None:
        here = await beating(client, A, msgspec.structs.replace(B, leaving=True))
        assert ReplicaDrained(name="b", draining=False, owned=1, effect="accepted") == await here.draining.drain("b")

    with_client(store, body)


def test_who_is_silent_is_told_to_be(store: Store) -> None:
    """It cannot hand anything over."""

    async def body(client: Client) -> None:
        here = await beating(client, A, B)
        beat_ms, _, rest = store.look.hget(KEY, b"b:b").partition(b"|")
        store.look.hset(KEY, b"b:b", b"%d|%b" % (int(beat_ms) - 100_000, rest))
        ends_at = SystemClock().now()
        for second in range(100):
            reading = Reading({"a": (0, A), "b": (second * 1000, B), "c": (0, C)}, {})
            here.members.heard(reading, ends_at - 100 + second)
        here.before = lambda: [C]
        with pytest.raises(DrainRefusedError, match=r"b is silent for \d+ s: others take over what it owned"):
            await here.draining.drain("b")
        assert {} == marks(store)

    with_client(store, body)


@pytest.mark.parametrize(("name", "nearest"), [("b-8081", "b-8080"), ("zzz", None)])
def test_a_name_that_nobody_has(store: Store, name: str, nearest: str | None) -> None:
    """Told with the nearest one."""

    async def body(client: Client) -> None:
        here = await beating(client, A, Member(name="b-8080", process="pb"))
        for action in (here.draining.drain, here.draining.undrain):
            with pytest.raises(ReplicaUnknownError) as unknown:
                await action(name)
            assert (name, nearest) == (unknown.value.name, unknown.value.nearest)

    with_client(store, body)
