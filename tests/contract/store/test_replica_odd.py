"""Odd things that a replica must outlive: sources that leave by themselves, bytes that somebody else put there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from indexer.model import SourceId
from indexer.store import layout
from indexer.store.failures import StoreFailure
from tests.support.core_events import BLOCK, prompt, removed, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from indexer.partitions.owned import OwnedSource
    from indexer.partitions.owner import Owner
    from indexer.partitions.writing import Writing
    from indexer.store.entries import Changed, Moved, Reasserted
    from indexer.store.journal import NewCopy, SourceRun
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import Began, Done, Laid, Refusal, Whereabouts
    from indexer.store.rebuild import Read, Shelf
    from indexer.store.segments import SegmentChanges
    from tests.support.redis_servers import Store

ONE: dict[str, Any] = {"redis__partitions": 1}
A = SourceId("a", 0)


def owner_of(replica: Replica) -> Owner:
    """Of the only partition."""
    owner: Owner = replica.part.owners[0]
    return owner


def writing_of(replica: Replica) -> Writing:
    """Its present epoch."""
    writing = owner_of(replica)._writing
    assert writing is not None
    return writing


def keys_of(replica: Replica) -> PartitionKeys:
    """Its keys."""
    return owner_of(replica)._keys


async def goes_on(replica: Replica, pod: str) -> None:
    """All engines go on, and what this one says is written."""
    for number in range(2, 5):
        for each in ("a", "b"):
            if replica.node.roster.sink(SourceId(each, 0)) is not None:
                replica.say(each, stored([number], prompt(1, 50 * number)))
        await replica.until(lambda: all(is_written(owned, pod) for owned in owner_of(replica).owned.values()))


def is_written(owned: OwnedSource, pod: str) -> bool:
    """Up to its last batch, where it is that pod."""
    return owned.id.pod != pod or owned.written == owned.source.facts.sequence


def test_a_topic_that_serves_another_model(store: Store) -> None:
    """It is registered anew; nothing is written any more of what it was."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        for model in ("m1", "m2"):
            assert first.node.source_for_topic("t", model, 0) is not None
            first.say("t", stored([1], prompt(1)))
            await first.written()
        first.say("t", stored([2], prompt(1, 50)))
        await first.written()

        assert [SourceId("a", 0), SourceId("t", 0)] == sorted(each.id for each in owner_of(first).owned.values())
        await first.stop()

    run(body)


def test_a_topic_that_is_gone_for_good(store: Store) -> None:
    """Nothing of it is written any more, and it does not come back into the registry."""

    async def body() -> None:
        first = await Replica(
            store.url,
            ("a",),
            staleness__retain_s=4.0,
            staleness__score_ttl_s=3.0,
            staleness__stale_after_s=2.0,
            **ONE,
        ).start()
        assert first.node.source_for_topic("t", "m", 0) is not None
        first.say("t", stored([1], prompt(1)))
        await first.written()
        await first.until(lambda: first.node.roster.sink(SourceId("t", 0)) is None)
        await first.until(lambda: not first.part.orders._outbox)

        assert [A] == [each.id for each in owner_of(first).owned.values()]
        await first.stop()

    run(body)


def test_bytes_that_wait_are_counted_right_over_losses(store: Store) -> None:
    """What waits is dropped where all is written anew, and where a source goes: it is not counted on."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        for server in store.servers:
            server.freeze()
        first.say("a", stored(range(2, 502), prompt(500, BLOCK)))
        for server in store.servers:
            server.thaw()
        store.look.flushall()
        await first.written()

        waiting = sum(each.waiting_bytes for each in owner_of(first).owned.values())
        assert waiting == first.part._parts.unwritten.bytes
        await first.stop()

    run(body)


def segment_of(look: Any, keys: PartitionKeys) -> bytes:  # noqa: ANN401  the library's client
    """Of source a: where its block lies."""
    state = look.hgetall(keys.source(A))
    number = layout.segment_of(1, int(state[b"segments"]))
    return keys.segment(A, int(state[b"generation"]), int(state[b"copy"]), number)


ODD: dict[str, Callable[[Any, PartitionKeys], object]] = {
    "head": lambda look, keys: look.set(keys.head, "5", ex=600),
    "head-text": lambda look, keys: look.set(keys.head, "x", ex=600),
    "epoch": lambda look, keys: look.set(keys.epoch, "x"),
    "generation": lambda look, keys: look.hset(keys.source(A), "generation", "x"),
    "cursor": lambda look, keys: look.hset(keys.source(A), "cursor", "x"),
    "copy": lambda look, keys: look.hset(keys.source(A), "copy", "x"),
    "segments": lambda look, keys: look.hset(keys.source(A), "segments", "0"),
    "segments-many": lambda look, keys: look.hset(keys.source(A), "segments", "-3"),
    "pairs": lambda look, keys: look.hset(keys.source(A), "pairs", "x"),
    "facts": lambda look, keys: look.hset(keys.source(A), "facts", "x"),
    "registration": lambda look, keys: look.hset(keys.sources, "a#0", "x"),
    "registration-name": lambda look, keys: look.hset(keys.sources, "zzz", "x"),
    "field": lambda look, keys: look.hset(segment_of(look, keys), "x", "y"),
    "value": lambda look, keys: look.hset(segment_of(look, keys), b"12345678", b"y"),
    "value-zeros": lambda look, keys: look.hset(segment_of(look, keys), b"12345678", bytes(16) + b"\1"),
    "control": lambda look, keys: look.xadd(keys.control, {"x": "y"}),
    "control-type": lambda look, keys: (look.delete(keys.control), look.set(keys.control, "x", ex=600)),
    "state-type": lambda look, keys: (look.delete(keys.source(A)), look.set(keys.source(A), "x", ex=600)),
    "registry-type": lambda look, keys: (look.delete(keys.sources), look.set(keys.sources, "x")),
    "log": lambda look, keys: look.xadd(keys.log, {"x": "y"}),
}
OF_ALL = ("control-type", "registry-type")
"""Without these the sources of a partition cannot be known."""


@pytest.mark.parametrize("what", list(ODD))
def test_odd_bytes_while_it_runs(store: Store, what: str) -> None:
    """The service goes on, and other sources of the partition are written."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b"), **ONE).start()
        for pod in ("a", "b"):
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        ODD[what](store.look, keys_of(first))
        await goes_on(first, "b")
        if what != "state-type":
            await first.written()
        await first.stop()

    run(body)


@pytest.mark.parametrize("what", [what for what in ODD if what not in OF_ALL])
def test_odd_bytes_at_the_start(store: Store, what: str) -> None:
    """The service starts, and other sources of the partition are there."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b"), **ONE).start()
        for pod in ("a", "b"):
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        await first.die()
        ODD[what](store.look, keys_of(first))
        second = await Replica(store.url, ("a", "b"), **ONE).start()
        assert BLOCK == second.ask(prompt(1), "b").matched_tokens
        await goes_on(second, "b")
        if what != "state-type":
            await second.written()
        await second.stop()

    run(body)


@pytest.mark.parametrize("what", OF_ALL)
def test_a_key_that_all_need(store: Store, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """The operator is told which one; when it is gone, the partition is there."""

    async def body() -> None:
        first = await Replica(store.url, ("b",), **ONE).start()
        first.say("b", stored([1], prompt(1)))
        await first.written()
        registry = store.look.hgetall(keys_of(first).sources)
        await first.die()
        ODD[what](store.look, keys_of(first))
        second = Replica(store.url, ("b",), **ONE)
        key = (keys_of(second).sources if what == "registry-type" else keys_of(second).control).decode()
        starting = asyncio.get_running_loop().create_task(second.start())
        await first.until(lambda: f"the key {key} is in use for something else" in caplog.text)
        assert caplog.text.count("is in use") < 3  # and not with every try
        store.look.delete(key)
        if what == "registry-type":
            store.look.hset(key, mapping=registry)
        await starting
        assert BLOCK == second.ask(prompt(1), "b").matched_tokens
        await second.stop()

    run(body)


def test_loads_that_fail_leave_nothing_behind(store: Store) -> None:
    """A partition that cannot be read whole is read again and again: what was read of it is given back each time."""

    async def body() -> None:
        first = await Replica(store.url, ("a", "b"), **ONE).start()
        for pod in ("a", "b"):
            first.say(pod, stored(range(1, 101), prompt(100)))
        await first.written()
        await first.die()
        second = Replica(store.url, ("a", "b"), **ONE)
        reader = second.part._parts.reader
        tries = 0

        async def fails(keys: PartitionKeys, source: SourceId, descriptor: bytes, shelf: Shelf) -> Read:
            nonlocal tries
            read = await read_well(keys, source, descriptor, shelf)
            tries += source == A
            if source == A and tries < 5:
                raise StoreFailure("timeout")
            return read

        read_well, reader.read = reader.read, fails
        await second.start()

        assert tries >= 5
        assert 2 == second.node.mirror.live_slots.bit_count()
        await second.stop()

    run(body)


def test_a_load_may_take_longer_than_a_lease(store: Store) -> None:
    """The partition is held meanwhile: nobody else gets it."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        await first.stop()
        second = Replica(store.url, ("a",), redis__lease_s=1.6, redis__heartbeat_s=0.5, redis__timeout_ms=400, **ONE)
        reader = second.part._parts.reader
        renewed = 0

        async def slow(keys: PartitionKeys, source: SourceId, descriptor: bytes, shelf: Shelf) -> Read:
            nonlocal renewed
            token, left_ms = store.look.get(keys.owner), store.look.pttl(keys.owner)
            while renewed < 4:  # a third of a lease each
                assert token == store.look.get(keys.owner)
                now_ms = store.look.pttl(keys.owner)
                renewed, left_ms = renewed + (now_ms > left_ms), now_ms
                await asyncio.sleep(0.01)
            return await read_well(keys, source, descriptor, shelf)

        read_well, reader.read = reader.read, slow
        await second.start()

        assert BLOCK == second.ask(prompt(1)).matched_tokens
        await second.stop()

    run(body)


def test_a_load_that_fails_is_tried_again(store: Store) -> None:
    """Several maps are read side by side, and those failures end neither the others' tasks nor the owner's own."""

    async def body() -> None:
        pods = ("a", "b", "c")
        first = await Replica(store.url, pods, **ONE).start()
        for pod in pods:
            first.say(pod, stored([1], prompt(1)))
        await first.written()
        await first.stop()
        second = Replica(store.url, pods, **ONE)
        reader, failed = second.part._parts.reader, 0

        async def failing(keys: PartitionKeys, source: SourceId, descriptor: bytes, shelf: Shelf) -> Read:
            nonlocal failed
            if failed < 3:
                failed += 1
                await asyncio.sleep(0)
                raise StoreFailure("timeout")
            return await read_well(keys, source, descriptor, shelf)

        read_well, reader.read = reader.read, failing
        await second.start()
        await second.until(lambda: second.part.owners[0].role == "owner")

        assert failed == 3
        assert BLOCK == second.ask(prompt(1)).matched_tokens
        await second.stop()

    run(body)


def test_an_engine_that_has_published_nothing(store: Store) -> None:
    """Its cursor is before the first batch: known as such after a restart, and by who follows."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.sink("a").proved()
        await first.written()
        mirror = await Replica(store.url, (), name="r2", server__roles=("lookup",), **ONE).start()
        await mirror.until(lambda: mirror.node.roster.sink(A) is not None and mirror.sink("a").cursor == -1)
        await first.stop()

        second = await Replica(store.url, ("a",), **ONE).start()

        assert -1 == second.sink("a").cursor
        assert second.sink("a").source.facts.complete
        await second.stop()
        await mirror.stop()

    run(body)


def test_what_cannot_be_written_is_not_called_live_elsewhere(store: Store) -> None:
    """Its owner lives and says so, and its engine began anew: a follower that cannot hear of that is stale."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), staleness__stale_after_s=2.0, **ONE).start()
        first.say("a", stored([1], prompt(1)))
        mirror = await Replica(
            store.url, (), name="r2", server__roles=("lookup",), staleness__stale_after_s=2.0, **ONE
        ).start()
        await mirror.until(lambda: mirror.node.roster.sink(A) is not None and mirror.ask(prompt(1)).state == "live")
        state = keys_of(first).source(A)
        held = store.look.dump(state)
        store.look.delete(state)
        store.look.set(state, "theirs", ex=600)
        first.sink("a").restart("probe_differs")

        def state_there() -> str:
            first.sink("a").alive(connected=True)
            return mirror.ask(prompt(1)).state

        await mirror.until(lambda: state_there() == "stale")
        store.look.restore(state, 600_000, held, replace=True)
        first.say("a", stored([2], prompt(1, 50)))
        await mirror.until(lambda: state_there() == "live" and mirror.ask(prompt(1, 50)).matched_tokens == BLOCK)
        assert 0 == mirror.ask(prompt(1)).matched_tokens
        await first.stop()
        await mirror.stop()

    run(body)


def test_a_stop_while_the_lease_is_over_says_what_is_left(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The partition is not owned in that moment, so nothing can be written."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        store.look.delete(keys_of(first).epoch)
        store.look.rpush(keys_of(first).epoch, "theirs")
        store.look.delete(keys_of(first).owner)
        await first.until(lambda: owner_of(first).role != "owner")
        first.say("a", stored([2], prompt(1, 50)))
        await first.stop()

        assert "in 1 partitions was not written" in caplog.text

    run(body)


def test_commands_of_other_partitions(store: Store) -> None:
    """Something else at the control stream of one partition costs the others nothing."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), redis__partitions=2).start()
        mine = first.part._parts.partition_of(A)
        other = first.part._keys[1 - mine].control
        store.look.delete(other)
        store.look.set(other, "theirs", ex=600)
        first.say("a", stored([1], prompt(1)))

        touched = await first.node.clear_source("a", None)

        assert "done" == touched.effect
        assert 0 == first.sink("a").source.pairs
        await first.stop()

    run(body)


@pytest.mark.parametrize("turns", [0, 1, 3, 9, 27])
def test_a_stop_while_a_large_run_is_made_ready(store: Store, turns: int) -> None:
    """What waited is made ready in slices; whatever moment the stop comes in, all of it is written."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        for n in range(12):
            first.say("a", stored(range(500 * n + 2, 500 * n + 502), prompt(500, BLOCK * (500 * n + 1))))
        for _ in range(turns):
            await asyncio.sleep(0)
        await first.stop()

        second = await Replica(store.url, ("a",), **ONE).start()

        assert (12, 6_001) == (second.sink("a").cursor, second.sink("a").source.pairs)
        await second.stop()

    run(body)


def test_what_waited_through_an_outage_is_as_followers_hear_it(store: Store) -> None:
    """A run of thousands of fields, some of them gone again."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored([1], prompt(1)))
        mirror = await Replica(store.url, (), name="r2", server__roles=("lookup",), **ONE).start()
        await mirror.until(lambda: mirror.node.roster.sink(A) is not None and mirror.ask(prompt(1)).state == "live")
        for server in store.servers:
            server.freeze()
        said = prompt(3_001)
        for n in range(6):
            blocks = range(500 * n + 2, 500 * n + 502)
            first.say("a", stored(blocks, said[BLOCK * (500 * n + 1) :][: 500 * BLOCK], parent=500 * n + 1))
        first.say("a", removed(3_001))
        for server in store.servers:
            server.thaw()
        await first.written()

        await mirror.until(lambda: mirror.ask(said).matched_tokens == 3_000 * BLOCK)
        assert 3_000 * BLOCK == first.ask(said).matched_tokens
        await first.stop()
        await mirror.stop()

    run(body)


def test_too_much_waits_while_a_new_copy_is_pointed_at(store: Store) -> None:
    """What was dropped then is in no copy: one more is laid."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), redis__pending_bytes=1 << 20, **ONE).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        journal = owner_of(first)._journal
        assert journal is not None
        flips = 0

        async def late(copy: NewCopy, entry: Reasserted | Moved) -> Began | Refusal:
            nonlocal flips
            flips += 1
            for n in range(12 if flips == 1 else 0):
                first.say("a", stored(range(500 * n + 2, 500 * n + 502), prompt(500, BLOCK * (500 * n + 1))))
            return await flip(copy, entry)

        flip, journal.flip = journal.flip, late  # type: ignore[method-assign]
        store.look.delete(keys_of(first).source(A))
        first.say("a", stored([9_001], prompt(1, BLOCK * 9_000)))
        await first.written()
        await first.die()

        second = await Replica(store.url, ("a",), **ONE).start()

        assert (13, 6_002) == (second.sink("a").cursor, second.sink("a").source.pairs)
        await second.stop()

    run(body)


def test_a_run_is_never_too_large_for_a_call(store: Store) -> None:
    """After an outage: what takes the store longer than a call may last is laid as a copy, in many calls."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored([1], prompt(1)))
        await first.written()
        journal = owner_of(first)._journal
        assert journal is not None
        largest = 0

        async def noted(runs: Sequence[SourceRun], entry: Changed) -> Done | Refusal:
            nonlocal largest
            largest = max(largest, *(len(change.token_hashes) // 8 for change in entry.changes))
            return await apply(runs, entry)

        apply, journal.apply = journal.apply, noted  # type: ignore[method-assign]
        for n in range(60):
            first.say("a", stored(range(500 * n + 2, 500 * n + 502), prompt(500, BLOCK * (500 * n + 1))))
        await first.written()

        assert largest <= 20_000
        await first.die()
        second = await Replica(store.url, ("a",), **ONE).start()
        assert (60, 30_001) == (second.sink("a").cursor, second.sink("a").source.pairs)
        await second.stop()

    run(body)


def test_copies_that_came_to_nothing_are_freed(store: Store) -> None:
    """A store that fails while a copy is laid must not fill up with the beginnings of copies."""

    async def body() -> None:
        first = await Replica(store.url, ("a",), **ONE).start()
        first.say("a", stored(range(1, 2_001), prompt(2_000)))
        await first.written()
        journal = owner_of(first)._journal
        assert journal is not None
        calls = 0

        async def fails(source: SourceId, where: Whereabouts, segment: SegmentChanges) -> Laid | Refusal:
            nonlocal calls
            calls += 1
            if calls in {2, 4, 6}:
                # Ticks go on meanwhile: one may be under way just now, and has nothing to do with this copy.
                await first.until(lambda: writing_of(first).open_call is not None)
                raise StoreFailure("timeout")
            return await lay(source, where, segment)

        lay, journal.lay = journal.lay, fails  # type: ignore[method-assign]
        store.look.delete(keys_of(first).source(A))
        first.say("a", stored([9_001], prompt(1, BLOCK * 9_000)))
        await first.written()
        (owned,) = owner_of(first).owned.values()
        assert owned.where is not None
        mine = f"{owned.where.generation}:{owned.where.copy}:".encode()

        await first.until(lambda: all(mine in key for key in store.all_keys() if b":map:" in key))

        assert calls > 6
        await first.stop()

    run(body)
