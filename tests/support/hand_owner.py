"""An owner of a partition that is driven by hand, and what it should have written, kept the naive way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from indexer.index.mirror import Mirror
from indexer.index.source import SourceIndex
from indexer.model import Descriptor, GroupInfo, SourceId, Tier
from indexer.store.commands import Command, Commanded, Verb, give
from indexer.store.entries import Changed, Moved, Reasserted, SourceChange, SourceTick, Ticked, Turned, pack_presence
from indexer.store.facts import TickFacts, pack_facts
from indexer.store.journal import NewCopy, SourceRun
from indexer.store.layout import source_name
from indexer.store.outcomes import Began, Done, Laid, Whereabouts
from indexer.store.registered import Registered, pack_registered
from indexer.store.segments import Change, Field, Placed, by_segment, encode_field, encode_value
from tests.support.owning import TIMES, owning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.store.client import Client
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys

BLOCK: Final = 16
TIERS: Final = (Tier.GPU, Tier.CPU)
"""In the order of their lanes, all of group 0."""
SEGMENTS: Final = 2
_MIX: Final = 0x9E37_79B9_7F4A_7C15


def token_of(number: int) -> int:
    """The token hash of a numbered block: spread like real ones."""
    return (number + 1) * _MIX & 0xFFFF_FFFF_FFFF_FFFF


def descriptor_of(source: SourceId) -> Descriptor:
    """A registration of it."""
    return Descriptor(pod=source.pod, dp_rank=source.dp_rank, endpoint="tcp://127.0.0.1:5557", model="m")


def facts_of(*doubts: str, lanes: int = len(TIERS)) -> bytes:
    """Facts of a source whose history is complete, in one group of full attention."""
    mirror = Mirror()
    source = SourceIndex(Descriptor(pod="x"), mirror, generation=1, orphans_max=0)
    for tier in TIERS[:lanes]:
        source.lane(0, tier)
    source.groups[0] = GroupInfo("full_attention", None, BLOCK)
    source.block_size = BLOCK
    source.weigh_groups(mirror)
    source.facts.complete = True
    source.facts.doubts.update(doubts)
    return pack_facts(source, 1)


FACTS: Final = facts_of()


@dataclass
class Truth:
    """One source as its owner has it: engine hash → token hash and lanes as bits."""

    where: Whereabouts
    sequence: int | None = None
    held: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def presence(self) -> dict[int, int]:
        """Token hash → lanes, as a mirror should have it."""
        out: dict[int, int] = {}
        for token_hash, lanes in self.held.values():
            out[token_hash] = out.get(token_hash, 0) | lanes
        return out


class HandOwner:
    """Writes each thing at once. `truth` is what followers should come to show."""

    def __init__(self, client: Client, keys: PartitionKeys, seed: int = 1) -> None:
        self.client = client
        self.keys = keys
        self.truth: dict[SourceId, Truth] = {}
        self.models: dict[SourceId, str] = {}
        """Of sources that serve another one than m."""
        self.silent_ms = 0
        self._chance = random.Random(seed)
        self._journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        """The writing end."""
        assert self._journal is not None
        return self._journal

    async def own(self) -> None:
        """Take the partition, or take it anew."""
        held = await self.client.string(self.keys.owner) or b""
        self._journal = await owning(self.client, self.keys, nonce=f"n{self._chance.getrandbits(60)}", held=held)

    async def command(self, verb: Verb, source: SourceId, *, cordoned: bool = False) -> int:
        """Give a command; the generation that stands since."""
        descriptor = msgspec.structs.replace(descriptor_of(source), model=self.models.get(source, "m"))
        command = Command(
            verb=verb,
            source=source,
            nonce=f"c{self._chance.getrandbits(60)}",
            descriptor=pack_registered(Registered(descriptor, cordoned)),
            known_generation=self.truth[source].where.generation if source in self.truth else 0,
        )
        reply = await give(self.client, self.keys, command, TIMES["retain_ms"])
        assert isinstance(reply, Commanded)
        return reply.generation

    async def put(self, source: SourceId) -> None:
        """Register it and begin its generation."""
        await self.turn(source, await self.command("put", source))

    async def turn(self, source: SourceId, generation: int) -> None:
        """Begin a generation, empty."""
        reply = await self.journal.turn(source, generation, SEGMENTS, Turned(source_name(source), generation))
        assert isinstance(reply, Began)
        self.truth[source] = Truth(Whereabouts(generation, 0, SEGMENTS))

    async def store(self, source: SourceId, numbers: Iterable[int], lanes: int = 1, *, aliases: int = 0) -> None:
        """Blocks are announced. With `aliases` several engine hashes stand for each token hash."""
        step = max(1, aliases)
        changed = {number: (token_of(number // step), lanes) for number in numbers}
        await self.write(source, changed)

    async def remove(self, source: SourceId, numbers: Iterable[int]) -> None:
        """Blocks are gone."""
        await self.write(source, dict.fromkeys(numbers))

    async def write(
        self,
        source: SourceId,
        changed: Mapping[int, tuple[int, int] | None],
        facts: bytes = FACTS,
    ) -> None:
        """One run."""
        truth = self.truth[source]
        tokens = {truth.held[number][0] for number in changed if number in truth.held}
        for number, held in changed.items():
            truth.held.pop(number, None)
            if held is not None:
                truth.held[number] = held
                tokens.add(held[0])
        before, truth.sequence = truth.sequence, 0 if truth.sequence is None else truth.sequence + 1
        changes = [Change(encode_field(Field(number, 0)), _value(held)) for number, held in changed.items()]
        run = SourceRun(
            source=source, where=truth.where, before=before, after=truth.sequence, changes=changes, facts=facts
        )
        presence = truth.presence
        hashes, lanes = pack_presence([(token, presence.get(token, 0)) for token in sorted(tokens)])
        told = SourceChange(source_name(source), truth.where.generation, truth.sequence, facts, hashes, lanes)
        reply = await self.journal.apply([run], Changed([told]))
        assert isinstance(reply, Done), reply

    async def lay_untold(self, source: SourceId, comes: Iterable[int], goes: Iterable[int]) -> None:
        """More waited than could be kept: it is never told, and stands in the next copy."""
        truth = self.truth[source]
        truth.held |= {number: (token_of(number), 1) for number in comes}
        for number in goes:
            truth.held.pop(number, None)
        truth.sequence = 0 if truth.sequence is None else truth.sequence + 1
        await self.lay(source)

    async def lay(self, source: SourceId, *, moved: bool = False) -> None:
        """A whole new copy."""
        truth = self.truth[source]
        where = self.journal.new_copy(truth.where.generation, max(1, len(truth.held)))
        segments = list(self.keys.copy(source, where.generation, where.copy, where.segments))
        changes = [Change(encode_field(Field(number, 0)), _value(held)) for number, held in truth.held.items()]
        for part in by_segment(changes, segments):
            assert isinstance(await self.journal.lay(source, where, part), Laid)
        copy = NewCopy(source=source, where=where, cursor=truth.sequence, facts=FACTS, pairs=len(truth.held))
        entry = (Moved if moved else Reasserted)(source_name(source), where.generation, where.copy)
        assert isinstance(await self.journal.flip(copy, entry), Began)
        truth.where = where

    async def tick(self, *, syncing: bool = False, connected: bool = True) -> None:
        """It lives, and so do its sources."""
        facts = TickFacts(syncing, self.silent_ms, self.silent_ms, [])
        ticks = [
            SourceTick(
                source_name(source), truth.where.generation, truth.sequence, self.silent_ms, connected, facts.pack()
            )
            for source, truth in self.truth.items()
        ]
        assert isinstance(await self.journal.tick(Ticked(1, ticks)), Done)


def _value(held: tuple[int, int] | None) -> bytes | None:
    if held is None:
        return None
    token_hash, lanes = held
    copies = tuple((tier, 1) for lane, tier in enumerate(TIERS) if lanes >> lane & 1)
    return encode_value((Placed(token_hash, copies),))
