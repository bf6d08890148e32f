"""What callers tell one replica of routed prompts reaches the others, as long as the sources are those they know."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

import pytest

from indexer.model import Descriptor, SourceId
from indexer.partitions import hints as told
from indexer.receipts.routed import Hint
from indexer.store.failures import DamagedValue
from indexer.store.hints import ENTRY_BYTES, PackedHint, append, read_entry
from indexer.store.layout import PartitionKeys, partition_of, source_name, tags
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport
from tests.support.core_events import prompt, stored, u32
from tests.support.owning import with_client
from tests.support.replicas import Replica, names_of_two, run

if TYPE_CHECKING:
    from indexer.store.client import Client
    from tests.support.redis_servers import Store

TOKENS: Final = prompt(4)
SILENT: Final = {"old": {"ttl_s": 600.0, "block_size": 4}}
POD: Final = SourceId("a", 0)


def hint_counts(replica: Replica) -> dict[str, int]:
    """What came of hints there."""
    return dict(replica.node.telemetry.receipts.hints)


async def route(replica: Replica, tokens: list[int], pod: str = "a") -> None:
    """A caller tells that replica."""
    query = LookupQuery(tokens=u32(tokens))
    await replica.node.report_routed(RoutedReport(pod=pod, dp_rank=None, request_id=None, of=None, query=query))


def speculative(replica: Replica, tokens: list[int], pod: str = "a") -> int:
    """What is expected of a pod there."""
    return replica.ask(tokens, pod).speculative_tokens


async def listening(replica: Replica) -> None:
    """Until it has read what was there before it came: until then it may hear its own hints, too, and counts them."""
    await replica.until(lambda: len(replica.part.hints._caught_up) == len(replica.part.owners))


def test_what_one_is_told_all_expect_until_the_event(store: Store) -> None:
    """The owner tells whoever follows, and a follower the owner; the event ends it at each."""

    async def body() -> None:
        owner, follower = [await Replica(store.url, name=name).start() for name in names_of_two()]
        await listening(owner)
        await listening(follower)
        owner.say("a", stored([99], [7, 7, 7, 7]))
        await follower.until(lambda: follower.sink().source.asking_size == 4)
        await route(owner, TOKENS)
        await follower.until(lambda: speculative(follower, TOKENS) == 16)
        await route(follower, [5, *TOKENS])
        await owner.until(lambda: speculative(owner, [5, *TOKENS]) == 16)
        assert 0 == follower.ask(TOKENS).matched_tokens

        owner.say("a", stored([1, 2, 3, 4], TOKENS))
        for replica in (owner, follower):
            await replica.until(lambda: replica.ask(TOKENS).matched_tokens == 16)  # noqa: B023  awaited at once
            await replica.until(lambda: replica.node.speculation.blocks <= 4)  # noqa: B023
            assert 1 == hint_counts(replica)["sent"]
            assert 1 == hint_counts(replica)["taken"]
        assert {"confirmed": 1} == owner.node.telemetry.receipts.ended
        owner.sink().restart("sequence_went_back")
        await follower.until(lambda: follower.node.speculation.blocks == 0)
        assert 0 == owner.node.speculation.blocks
        await owner.stop()
        await follower.stop()

    run(body)


def test_of_a_silent_engine_a_replica_that_starts_learns_what_was_routed(store: Store) -> None:
    """It is live by estimate at both; what is older than the replica counts for the time that is left."""

    async def body() -> None:
        first = await Replica(store.url, (), name="r1", models__approximate=SILENT).start()
        await first.node.add_source(Descriptor(pod="quiet", model="old"))
        await route(first, TOKENS, "quiet")
        assert 16 == speculative(first, TOKENS, "quiet")
        await first.until(lambda: hint_counts(first).get("sent"))
        second = await Replica(store.url, (), name="r2", models__approximate=SILENT).start()
        await second.until(lambda: second.node.roster.sink(SourceId("quiet", 0)))
        await second.until(lambda: speculative(second, TOKENS, "quiet") == 16)
        for replica in (first, second):
            entry = replica.ask(TOKENS, "quiet")
            assert ("live", "estimate", "approximate", 4) == (entry.state, entry.bound, entry.reason, entry.block_size)
        await first.stop()
        await second.stop()

    run(body)


def test_a_hint_of_another_generation_is_let_go(store: Store) -> None:
    """And what is no hint is counted, and harms nobody."""

    async def body() -> None:
        replica = await Replica(store.url, name="r1").start()
        replica.say("a", stored([99], [7, 7, 7, 7]))
        generation = replica.sink().source.facts.generation
        number = partition_of(POD, 16)
        keys = PartitionKeys("kvi", tags(16)[number])
        part, name = replica.part, source_name(POD)
        hashes = replica.node.hash(LookupQuery(tokens=u32(TOKENS), block_size=4)).hashes
        image = b"".join(each.to_bytes(8, "little") for each in hashes)
        client = part._parts.client
        await append(client, keys, "w", [PackedHint(name, generation - 1, 1_000, image)], 60_000)
        store.look.xadd(keys.hints, {"w": "x", "h": b"\xc1"})
        await append(client, keys, "w", [PackedHint(name, generation, 9_000, image)], 60_000)
        await replica.until(lambda: speculative(replica, TOKENS) == 16)
        assert {"unknown": 1, "damaged": 1, "taken": 1} == hint_counts(replica)
        await replica.stop()

    run(body)


def test_hints_that_find_no_room_or_no_store_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And counted; something else at the key of one partition keeps no other from being told."""

    async def body() -> None:
        replica = await Replica(store.url, name="r1").start()
        hints = replica.part.hints
        keys = [PartitionKeys("kvi", tag) for tag in tags(16)]
        pods = [SourceId(f"p{number}", 0) for number in range(64)]
        other = next(pod for pod in pods if partition_of(pod, 16) != partition_of(POD, 16))
        store.look.set(keys[partition_of(POD, 16)].hints, "x", px=60_000)
        await listening(replica)
        for pod in (POD, other):
            hints.tell(Hint(pod, 1, 1.0, bytes(8 * 5_000)))
        await replica.until(lambda: hint_counts(replica) == {"dropped": 5, "sent": 5})
        monkeypatch.setattr(told, "PENDING_BYTES", 7)
        hints.tell(Hint(POD, 1, 1.0, bytes(8)))
        assert 6 == hint_counts(replica)["dropped"]
        await replica.stop()

    run(body)


@pytest.mark.parametrize(("pod", "blocks"), [("a" * 500, 1), ("a", 1), ("a", 40), ("ä" * 500, 5_000)])
def test_hints_are_bounded_in_what_they_take(store: Store, pod: str, blocks: int) -> None:
    """Names and all, while they wait and in the store: many small ones are no more than a few large."""

    async def body() -> None:
        replica = await Replica(store.url, name="r1").start()
        hints, source = replica.part.hints, SourceId(pod, 0)
        hint, number = Hint(source, 1_700_000_000_000_000, 1.0, bytes(8 * blocks)), partition_of(source, 16)
        while not hint_counts(replica).get("dropped"):
            hints.tell(hint)
        waiting = hints._waiting[number]
        taken = sum(getsizeof(each) + getsizeof(each.source) + getsizeof(each.hashes) for each in waiting)
        assert told.PENDING_BYTES / 2 < taken < 1.1 * told.PENDING_BYTES
        await hints._write_some(number)
        key = PartitionKeys("kvi", tags(16)[number]).hints
        await replica.until(lambda: store.look.xlen(key))
        sizes = [len(fields[b"h"]) for _, fields in store.look.xrange(key, count=3)]
        assert ENTRY_BYTES / 3 < max(sizes) <= ENTRY_BYTES
        await replica.stop()

    run(body)


def test_all_that_waited_is_written(store: Store) -> None:
    """And nothing is left of what was reckoned for it."""

    async def body() -> None:
        replica = await Replica(store.url, name="r1").start()
        hints = replica.part.hints
        for blocks in (1, 5_000, 40, 0):
            hints.tell(Hint(SourceId("b", 0), 1, 1.0, bytes(8 * blocks)))
        await replica.until(lambda: hint_counts(replica).get("sent") == 7 and not hints._waiting_bytes)
        await replica.stop()

    run(body)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"h": b"\x90\x90"},
        {b"h": b"\x91\x94\xc4\x03a#0\x01\x01\xc4\x01x"},
        {b"h": b"\x91\x94\xc4\x03a#0\x01\xff\xc4\x00"},
    ],
    ids=["nothing", "two things", "half a hash", "a time before now"],
)
def test_what_is_damaged_is_told(fields: dict[bytes, bytes]) -> None:
    """Rather than guessed at."""
    with pytest.raises(DamagedValue):
        read_entry((b"1-1", fields))


def test_streams_are_bounded(store: Store, keys: PartitionKeys) -> None:
    """However much is told."""

    async def body(client: Client) -> None:
        for _ in range(600):
            await append(client, keys, "w", [PackedHint(b"a#0", 1, 1, bytes(8))], 60_000)
        assert 256 <= store.look.xlen(keys.hints) <= 400

    with_client(store, body)
