"""Somebody wrote nonsense where our values stand: the process lives, says so, and writes it anew; others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from indexer.store.layout import PartitionKeys, tags
from indexer.store.segments import Field, encode_field
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from indexer.model import SourceId
    from tests.support.redis_servers import Store

NONSENSE = b"\xc1nonsense"
HUGE = b"9" * 30
KEYS = PartitionKeys("kvi", tags(1)[0])
ONE: dict[str, Any] = {
    "redis__partitions": 1,
    "staleness__retain_s": 6.0,
    "staleness__score_ttl_s": 5.0,
    "staleness__stale_after_s": 4.0,
}
"""All sources in one partition: else none could harm the other. And what is seldom looked at is, soon."""


def state(field: bytes, value: bytes) -> Any:  # noqa: ANN401  a harm
    """A field of a source's state."""
    return lambda look, source: look.hset(KEYS.source(source), field, value)


STATES = {
    "generation": state(b"generation", NONSENSE),
    "a huge generation": state(b"generation", HUGE),
    "cursor": state(b"cursor", NONSENSE),
    "a cursor before the first": state(b"cursor", b"-5"),
    "copy": state(b"copy", NONSENSE),
    "segments": state(b"segments", NONSENSE),
    "billions of segments": state(b"segments", b"9999999999"),
    "pairs": state(b"pairs", NONSENSE),
}
REGISTRATIONS = {
    "registration": lambda look, _: look.hset(KEYS.sources, b"a#0", NONSENSE),
    "another's registration": lambda look, _: look.hset(KEYS.sources, b"a#0", look.hget(KEYS.sources, b"b#0")),
}
WHILE_IT_RUNS = {**STATES, **REGISTRATIONS}
AT_THE_START = {
    **STATES,
    **REGISTRATIONS,
    "facts": state(b"facts", NONSENSE),
    "no segments": state(b"segments", b"0"),
    "a value of its map": lambda look, source: look.hset(segment(look, source), encode_field(Field(1, 0)), NONSENSE),
}
FROM_OTHERS = {
    "a registration without a source": lambda look, _: look.hset(KEYS.sources, NONSENSE, b"x"),
    "a rank of many digits": lambda look, _: look.hset(KEYS.sources, b"a#" + b"1" * 5_000, b"x"),
    "a registration that cannot be read": lambda look, _: look.hset(KEYS.sources, b"c#0", NONSENSE),
    "an entry of the journal": lambda look, _: look.xadd(KEYS.log, {"x": "y"}),
    "the journal's head": lambda look, _: look.set(KEYS.head, NONSENSE, keepttl=True),
    "a huge head": lambda look, _: look.set(KEYS.head, HUGE + b"-1", keepttl=True),
    "the epoch": lambda look, _: look.set(KEYS.epoch, HUGE + b":a:b"),
    "a command": lambda look, _: look.xadd(KEYS.control, {"v": "clear", "s": "a#0", "g": HUGE, "d": ""}),
}


def segment(look: Any, source: SourceId) -> bytes:  # noqa: ANN401  any client
    """The only one of a source's small map."""
    found = look.hgetall(KEYS.source(source))
    where = [int(found[field]) for field in (b"generation", b"copy", b"segments")]
    return next(key for key in KEYS.copy(source, *where) if look.exists(key))


async def begun(store: Store) -> Replica:
    """Two sources, all of which is in the store."""
    replica = await Replica(store.url, ("a", "b"), **ONE).start()
    for pod in "ab":
        replica.say(pod, stored(range(1, 9), prompt(8)))
    await replica.written()
    return replica


async def is_right(replica: Replica, url: str, held: int) -> None:
    """Of both sources, here and at a replica that starts now."""
    await replica.written()
    follower = await Replica(url, (), name="follower", **ONE, server__roles=("lookup",)).start()
    for pod in "ab":
        assert held * BLOCK == replica.ask(prompt(held), pod).matched_tokens
        await follower.until(lambda pod=pod: knows(follower, pod, held))  # type: ignore[misc]
    await follower.stop()


def knows(replica: Replica, pod: str, held: int) -> bool:
    """Whether it has a source's map."""
    entries = {source.pod for source in replica.node.registry.sources}
    return pod in entries and held * BLOCK == replica.ask(prompt(held), pod).matched_tokens


@pytest.mark.parametrize("what", [*WHILE_IT_RUNS, *FROM_OTHERS])
def test_while_it_runs(store: Store, what: str) -> None:
    """Nothing that is known is lost, and what comes next is written."""

    async def body() -> None:
        replica = await begun(store)
        source = replica.sink("a").source.descriptor.id
        {**WHILE_IT_RUNS, **FROM_OTHERS}[what](store.look, source)
        for pod in "ab":
            replica.say(pod, stored([9], prompt(9)[-BLOCK:], parent=8))
        await is_right(replica, store.url, 9)
        await replica.stop()

    run(body)


@pytest.mark.parametrize("what", [*AT_THE_START, *FROM_OTHERS])
def test_at_the_start(store: Store, what: str) -> None:
    """What cannot be read of one source begins anew, as a configured one does; the other goes on where it was."""

    async def body() -> None:
        first = await begun(store)
        source = first.sink("a").source.descriptor.id
        await first.die()
        {**AT_THE_START, **FROM_OTHERS}[what](store.look, source)

        second = await Replica(store.url, ("a", "b"), **ONE).start()

        assert 8 * BLOCK == second.ask(prompt(8), "b").matched_tokens
        if what in AT_THE_START:
            await second.until(lambda: source in second.collector.resumed)
            assert second.collector.resumed[source] is None
            second.say("a", stored(range(1, 9), prompt(8)))
        await is_right(second, store.url, 8)
        await second.stop()

    run(body)
