"""Scenario `store`: what durability costs, as ratios to bare commands by the same library in one run.

    writes    merged runs of 16 blocks through `Journal.apply`, one at a time, against the same fields written by plain
              pipelined HSET into the same number of hashes, one pipeline a batch, one at a time. Rounds alternate.
    rebuild   `rebuild.load` of a million pairs with every field decoded, against bare HSCAN of the same hashes
    bytes     MEMORY USAGE of all segments a pair, and of the journal against its budget

Store on one core, this process on the other.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

import uvloop
from redis.asyncio import Redis

from indexer.clock import SystemClock
from indexer.model import SourceId, Tier
from indexer.store.address import parse
from indexer.store.budget import JournalBudget
from indexer.store.client import Client, ClientOptions
from indexer.store.commands import Command, give
from indexer.store.entries import Changed, Reasserted, SourceChange, Turned, pack_presence
from indexer.store.journal import Journal, NewCopy, SourceRun
from indexer.store.layout import PartitionKeys, source_name, tags
from indexer.store.lease import Acquired, acquire
from indexer.store.outcomes import Began, Done, Laid, Whereabouts
from indexer.store.rebuild import LoadOptions, load
from indexer.store.segments import (
    Change,
    Field,
    Placed,
    by_segment,
    decode_field,
    decode_value,
    encode_field,
    encode_value,
)
from loadtest.machine import cores, pin
from loadtest.report import Result, Row, Target, begin
from loadtest.stats import median
from loadtest.stores import KINDS, Kind, StoreServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.store.loading import SourceState

SOURCE: Final = SourceId("pod-1", 0)
SEGMENTS: Final = (8, 64)
"""Hashes over which a source's map is spread: as for 50,000 blocks, and for half a million."""
GENERATION: Final = len(SEGMENTS)
BATCH: Final = 16
RETAIN_MS: Final = 3_600_000
LOG_BYTES: Final = 2 << 20
WRITES_MIN: Final = 0.5
REBUILD_MAX: Final = 3.0
PAIR_MAX: Final = 110.0
PATIENT: Final = ClientOptions(timeout_s=60.0)


class Counted:
    """Decodes what it is given, as a mirror must, and keeps a count."""

    def __init__(self) -> None:
        self.fields = 0
        self.longest_s = 0.0

    def begin(self, source: SourceId, descriptor: bytes, state: SourceState) -> None:
        """See `Shelf.begin`."""
        del source, descriptor, state

    def take(self, source: SourceId, fields: Mapping[bytes, bytes]) -> None:
        """See `Shelf.take`."""
        del source
        started = time.perf_counter()
        for field, value in fields.items():
            decode_value(decode_field(field), value)
        self.fields += len(fields)
        self.longest_s = max(self.longest_s, time.perf_counter() - started)


def run(*, blocks: int = 64_000, rounds: int = 5, pairs: int = 1_000_000) -> Result:
    """Measure. `blocks` written a round each way, `pairs` rebuilt."""
    places = cores()
    pin(places.generator)
    result = begin("store", {"blocks a round": blocks, "rounds": rounds, "batch": BATCH, "pairs rebuilt": pairs})
    writes: list[Row] = []
    reads: list[Row] = []
    sizes: list[Row] = []
    for kind in KINDS:
        with StoreServer(kind, places.service) as server:
            measured = uvloop.run(_measure(server, kind, blocks, rounds, pairs))
        writes += measured[0]
        reads.append(measured[1])
        sizes.append(measured[2])
        result.targets += _targets(kind, *measured)
    result.tables = {"Writes, 16-block runs": writes, "Rebuild": reads, "Bytes": sizes}
    return result


def _targets(kind: Kind, writes: Sequence[Row], reads: Row, sizes: Row) -> list[Target]:
    def figure(row: Row, name: str) -> float:
        return float(row[name] or 0)

    durable = [
        Target(f"{kind}: durable writes over {row['hashes']} hashes, of bare HSET", figure(row, "ratio"), WRITES_MIN)
        for row in writes
    ]
    return [
        *durable,
        Target(f"{kind}: rebuild, times bare HSCAN", figure(reads, "ratio"), REBUILD_MAX, at_least=False),
        Target(f"{kind}: bytes per pair", figure(sizes, "per pair"), PAIR_MAX, at_least=False),
        Target(f"{kind}: journal, of its budget", figure(sizes, "journal / budget"), 1.0, at_least=False),
    ]


async def _measure(server: StoreServer, kind: Kind, blocks: int, rounds: int, pairs: int) -> tuple[list[Row], Row, Row]:
    client = Client(parse(server.url), PATIENT, SystemClock(), random.Random(1))
    bare = Redis(unix_socket_path=server.url.removeprefix("unix://"), protocol=2)
    keys = PartitionKeys("load", tags(16)[0])
    try:
        journal = await _owner(client, keys)
        writes = await _writes(journal, bare, blocks, rounds)
        log_bytes = await client.bytes_used(keys.log)
        where = await _fill(journal, keys, pairs)
        with server.look() as look:
            segments = list(keys.copy(SOURCE, where.generation, where.copy, where.segments))
            map_bytes = sum(look.memory_usage(key, samples=0) or 0 for key in segments)
        reads = await _reads(client, bare, keys, segments)
    finally:
        await client.close()
        await bare.aclose()
    sizes: Row = {
        "per pair": map_bytes / pairs,
        "journal MiB": log_bytes / 2**20,
        "journal / budget": log_bytes / LOG_BYTES,
    }
    writes = [{"store": kind, **row} for row in writes]
    reads, sizes = {"store": kind, **reads}, {"store": kind, **sizes}
    for row in (*writes, reads, sizes):
        print(f"  {row}", flush=True)
    return writes, reads, sizes


async def _owner(client: Client, keys: PartitionKeys) -> Journal:
    await give(client, keys, Command(verb="restore", source=SOURCE, nonce="1", descriptor=b"d"), RETAIN_MS)
    owned = await acquire(client, keys, replica="a", nonce="1", lease_ms=RETAIN_MS, retain_ms=RETAIN_MS)
    assert isinstance(owned, Acquired)
    budget = JournalBudget(LOG_BYTES, 0)
    return Journal(client, keys, token=owned.token, position=owned.position, budget=budget, retain_ms=RETAIN_MS)


# -- writes ------------------------------------------------------------------------------------------------------------


async def _writes(journal: Journal, bare: Redis, blocks: int, rounds: int) -> list[Row]:
    rows: list[Row] = []
    for generation, segments in enumerate(SEGMENTS, start=1):
        where = Whereabouts(generation, 0, segments)
        begun = await journal.turn(SOURCE, generation, segments, Turned(source_name(SOURCE), generation))
        assert isinstance(begun, Began)
        durable, plain = [], []
        for number in range(rounds + 1):  # the first round only warms up
            batches = [_hashes(number * blocks + first, BATCH) for first in range(0, blocks, BATCH)]
            before = None if not number else number * len(batches) - 1
            durable.append(await _durable(journal, where, batches, before))
            plain.append(await _plain(bare, segments, batches))
        rows.append(
            {
                "hashes": segments,
                "durable blocks/s": blocks / median(durable[1:]),
                "bare HSET blocks/s": blocks / median(plain[1:]),
                "ratio": median([theirs / ours for ours, theirs in zip(durable[1:], plain[1:], strict=True)]),
            }
        )
    return rows


async def _durable(journal: Journal, where: Whereabouts, batches: Sequence[list[int]], before: int | None) -> float:
    started = time.perf_counter()
    for hashes in batches:
        after = 0 if before is None else before + 1
        run_ = SourceRun(source=SOURCE, where=where, before=before, after=after, changes=_changes(hashes))
        change = SourceChange(
            source_name(SOURCE), where.generation, after, b"", *pack_presence([(h, 1) for h in hashes])
        )
        reply = await journal.apply([run_], Changed([change]))
        assert reply == Done(), reply
        before = after
    return time.perf_counter() - started


async def _plain(bare: Redis, hashes_: int, batches: Sequence[list[int]]) -> float:
    keys = [b"bare:%d" % number for number in range(hashes_)]
    started = time.perf_counter()
    for hashes in batches:
        by_key: dict[bytes, dict[Any, Any]] = {}
        for field, value in _changes(hashes):
            by_key.setdefault(keys[field[0] % hashes_], {})[field] = value
        pipeline = bare.pipeline(transaction=False)
        for key, mapping in by_key.items():
            pipeline.hset(key, mapping=mapping)
        await pipeline.execute()
    return time.perf_counter() - started


def _hashes(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(1, 2**63), k=count)


def _changes(hashes: Sequence[int]) -> list[Change]:
    return [
        Change(encode_field(Field(hash_, 0)), encode_value((Placed(hash_ ^ 1, ((Tier.GPU, 1),)),))) for hash_ in hashes
    ]


# -- rebuild -----------------------------------------------------------------------------------------------------------


async def _fill(journal: Journal, keys: PartitionKeys, pairs: int) -> Whereabouts:
    where = journal.new_copy(GENERATION, pairs)
    segments = list(keys.copy(SOURCE, where.generation, where.copy, where.segments))
    laid = 0
    while laid < pairs:
        count = min(20_000, pairs - laid)
        for part in by_segment(_changes(_hashes(-1 - laid, count)), segments):
            assert isinstance(await journal.lay(SOURCE, where, part), Laid)
        laid += count
    copy = NewCopy(source=SOURCE, where=where, cursor=0, facts=b"", pairs=pairs)
    begun = await journal.flip(copy, Reasserted(source_name(SOURCE), GENERATION, where.copy))
    assert isinstance(begun, Began), begun
    return where


async def _reads(client: Client, bare: Redis, keys: PartitionKeys, segments: Sequence[bytes]) -> Row:
    ours, theirs, longest, fields = [], [], 0.0, 0
    for _ in range(3):
        shelf = Counted()
        started = time.perf_counter()
        loaded = await load(client, keys, shelf, LoadOptions())
        ours.append(time.perf_counter() - started)
        assert loaded.outcomes == {SOURCE: "whole"}, loaded
        longest, fields = max(longest, shelf.longest_s), shelf.fields
        started = time.perf_counter()
        for key in segments:
            cursor = 0
            while True:
                cursor, _ = await bare.hscan(key, cursor, count=1_000)
                if not cursor:
                    break
        theirs.append(time.perf_counter() - started)
    return {
        "fields": fields,
        "load s": median(ours),
        "bare HSCAN s": median(theirs),
        "ratio": median([own / other for own, other in zip(ours, theirs, strict=True)]),
        "longest decode ms": 1000 * longest,
    }
