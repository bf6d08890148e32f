"""How busy engines are is read by the replica that applies their events, and known to all."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from indexer.loads.board import LoadBoard
from indexer.loads.engine_metrics import EngineLoad
from indexer.model import SourceId
from indexer.partitions import load_sharing
from indexer.partitions.load_sharing import LoadSharing
from indexer.store.failures import DamagedValue
from indexer.store.layout import PartitionKeys, partition_of, source_name, tags
from indexer.store.loads import LOADS_BYTES_MAX, PackedLoad, ToldLoad, put_loads, read_loads
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport
from tests.support.busy_engine import busy_engine, load_text, whole
from tests.support.core_events import prompt, stored, u32
from tests.support.replicas import Replica, names_of_two, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

POD = SourceId("a", 0)
EVERY_S = 0.2


def running(replica: Replica, pod: str) -> float | None:
    """As it is known there."""
    reading = replica.node.loads.readings.get(SourceId(pod, 0))
    return None if reading is None else reading.load.running


async def route(replica: Replica, request_id: str, pod: str, first: int) -> None:
    """A caller tells that replica."""
    query = LookupQuery(tokens=u32(prompt(2, first)))
    report = RoutedReport(pod=pod, dp_rank=None, request_id=request_id, of=None, query=query)
    await replica.node.report_routed(report)


def test_one_asks_and_all_know(store: Store) -> None:
    """The engine hears one question an interval, whoever applies its events; and the age is never told too small."""

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answer = whole(load_text(3, 1, 0.5))
            pod, settings = engine.address, {"loads__interval_s": EVERY_S}
            names = names_of_two(pod)
            owner = await Replica(store.url, (pod,), name=names[0], **settings).start()
            follower = await Replica(store.url, (pod,), name=names[1], **settings).start()
            await follower.until(lambda: running(follower, pod) == 3)
            engine.answer = whole(load_text(8, 1, 0.5))
            await follower.until(lambda: running(follower, pod) == 8)
            assert 1 == engine.connections
            assert not follower.node.telemetry.scrapes
            source = SourceId(pod, 0)
            known = follower.node.loads.readings[source]
            assert known.load == EngineLoad(8, 1, 0.5)
            assert known.at <= owner.node.loads.readings[source].at

            await owner.die()
            await follower.until(lambda: not follower.sink(pod).followed)
            engine.answer = whole(load_text(5))
            await follower.until(lambda: running(follower, pod) == 5)
            assert follower.node.telemetry.scrapes["ok"]
            assert 0 < store.look.pttl(keys_of(source).loads) <= 60_000
            await follower.stop()

    run(body)


def keys_of(source: SourceId) -> PartitionKeys:
    """Of its partition."""
    return PartitionKeys("kvi", tags(16)[partition_of(source, 16)])


def test_what_was_routed_elsewhere_counts(store: Store) -> None:
    """As hints tell: once a request, however long its prompt is."""

    async def body() -> None:
        owner, follower = [await Replica(store.url, name=name).start() for name in names_of_two()]
        owner.say("a", stored([99], [7, 7, 7, 7]))
        await follower.until(lambda: follower.sink().source.asking_size == 4)
        for replica in (owner, follower):
            await replica.until(lambda: len(replica.part.hints._caught_up) == 16)  # noqa: B023  awaited at once
        await route(owner, "short", "a", 100)
        long = LookupQuery(tokens=u32(prompt(3_000, 10_000)))
        await owner.node.report_routed(RoutedReport(pod="a", dp_rank=None, request_id="long", of=None, query=long))
        await follower.until(lambda: follower.node.loads.receipts.open(POD) == 2)
        assert {POD: 2.0} == owner.node.loads.view([POD], owner.node.clock.now()).requests
        await owner.stop()
        await follower.stop()

    run(body)


def test_only_what_is_new_is_believed(store: Store) -> None:
    """What was there before the first look may be of any age; what cannot be read says nothing."""

    async def body() -> None:
        replica, keys = await Replica(store.url, name="r1").start(), keys_of(POD)
        parts, board = replica.part._parts, LoadBoard(lambda _: None, interval_s=1.0)
        sharing = LoadSharing(parts, {0: keys}, owned=lambda _: None, is_followed=lambda _: True)

        async def told(serial: str, running: int, source: SourceId = POD) -> float | None:
            """What is known after a look at it."""
            row = PackedLoad(source_name(source), running, 0, None, 1_000)
            await put_loads(parts.client, keys, serial, [row], 60_000)
            await sharing._look(board)
            reading = board.readings.get(source)
            return None if reading is None else reading.load.running

        assert await told("old", 1) is None
        looked_at = parts.clock.now()
        assert await told("old", 1) is None
        assert 2 == await told("new", 2)
        assert board.readings[POD].at + 1.0 <= parts.clock.now()
        assert board.readings[POD].at + 1.0 >= looked_at
        assert await told("another's", 3, SourceId("nobody", 0)) is None
        store.look.hset(keys.loads, "l", b"\xc1")
        await sharing._look(board)
        assert 2 == board.readings[POD].load.running
        assert 4 == await told("well again", 4)
        await replica.stop()

    run(body)


def test_what_is_told_of_a_partition_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And counted where that is too little."""
    monkeypatch.setattr(load_sharing, "ROWS_MAX", 2)

    async def body() -> None:
        replica = await Replica(store.url, name="r1", loads__interval_s=None).start()
        reached: list[str] = []
        board = LoadBoard(reached.append, interval_s=0.1)
        ids = [SourceId(str(number), 0) for number in range(3)]
        for source in ids:
            board.read(source, EngineLoad(1, 0, None), replica.node.clock.now())
        sharing = LoadSharing(replica.part._parts, {0: keys_of(POD)}, owned=lambda _: ids, is_followed=lambda _: False)
        sharing.share(board, 0.1, reached.append)
        telling = asyncio.get_running_loop().create_task(sharing.run())
        await replica.until(lambda: store.look.exists(keys_of(POD).loads))
        telling.cancel()
        assert ids[:2] == [each.source for each in read_loads(store.look.hget(keys_of(POD).loads, "l"))]
        assert load_sharing.ROWS_LIMIT in reached
        await replica.stop()

    run(body)


def test_any_array_may_grow() -> None:
    """A later version adds to its end; what is no such thing is refused whole."""
    row = [source_name(POD), 1, 2.5, None, 1_500]
    later = msgspec.msgpack.encode([b"serial", [[*row, "more"]], "more"])
    assert [ToldLoad(POD, EngineLoad(1, 2.5, None), 1.5)] == list(read_loads(later))
    chance = random.Random(3)
    for damaged in (
        b"",
        b"\xc1",
        msgspec.msgpack.encode([b"serial", [[*row[:4]]]]),
        msgspec.msgpack.encode([b"serial", [[*row[:1], -1, *row[2:]]]]),
        msgspec.msgpack.encode([b"serial", [[b"no rank", *row[1:]]]]),
        chance.randbytes(200),
        msgspec.msgpack.encode([b"serial", [row] * (LOADS_BYTES_MAX // 10)]),
    ):
        with pytest.raises(DamagedValue):
            read_loads(damaged)
