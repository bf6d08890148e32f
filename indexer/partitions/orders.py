"""[I/O] Commands that are given at this replica: checked against what it knows, made durable, and awaited.

A command is durable when its script has run. It is in force here when this replica has read it back from the control
stream, as all others do; where that takes longer than `IN_FORCE_S`, the caller is told that it is accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from indexer.partitions.commanding import command, command_store
from indexer.store.commands import Command, Commanded, NoSuchSource
from indexer.store.failures import StoreFailure
from indexer.store.registered import Registered, pack_registered
from schemas.rest import Effect, SourceRegistered, SourcesReplaced, SourcesTouched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from indexer.model import Descriptor, SourceId
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.store.commands import Verb
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import WrongType

log = logging.getLogger("kvindexer.store")

IN_FORCE_S: Final = 2.0
LOOK_S: Final = 0.002
RETRY_S: Final = 0.5
OUTBOX_MAX: Final = 8_192


class _Later(NamedTuple):
    """A command that is retried until the store has it; `otherwise` follows where the registry has no such source."""

    command: Command
    otherwise: Command | None = None


class Orders:
    """`keys` of all partitions; `owners` where this replica owns what it can."""

    def __init__(self, parts: Parts, keys: Mapping[int, PartitionKeys], owners: Mapping[int, Owner]) -> None:
        self._parts = parts
        self._keys = keys
        self._owners = owners
        self._outbox: deque[_Later] = deque(maxlen=OUTBOX_MAX)
        self._posted = asyncio.Event()

    # -- of callers ---------------------------------------------------------------------------------------------------

    async def add(self, descriptor: Descriptor) -> SourceRegistered:
        """Register. Raises as `Roster.add`, and StoreFailure."""
        roster = self._parts.roster
        if roster.stands(descriptor):
            return SourceRegistered(pod=descriptor.pod, dp_rank=descriptor.dp_rank, result="same")
        commanded = await self._give("put", descriptor.id, Registered(descriptor))
        effect = await self._in_force(lambda: self._has(descriptor))
        roster.say_registered(descriptor)
        result: Literal["created", "same"] = "created" if commanded is None or commanded.changed else "same"
        return SourceRegistered(pod=descriptor.pod, dp_rank=descriptor.dp_rank, result=result, effect=effect)

    async def replace(self, descriptors: Sequence[Descriptor], *, max_removals: int | None) -> SourcesReplaced:
        """Make these the whole set of origin `api`. Checked as a whole; then one command a source."""
        roster = self._parts.roster
        exchange = roster.plan_exchange(descriptors, max_removals=max_removals)
        removed = {key: await self._give("remove", key) for key in exchange.removed}
        for descriptor in exchange.fresh:
            await self._give("put", descriptor.id, Registered(descriptor, descriptor.id in exchange.cordoned))
        effect = await self._in_force(
            lambda: all(map(self._has, exchange.fresh)) and all(map(self._has_read, removed, removed.values()))
        )
        roster.say_exchanged(exchange)
        answer = exchange.answer
        return SourcesReplaced(added=answer.added, kept=answer.kept, removed=answer.removed, effect=effect)

    async def remove(self, pod: str, dp_rank: int | None) -> SourcesTouched:
        """Remove one rank or all."""
        keys = self._parts.roster.may_remove(pod, dp_rank)
        given = {key: await self._give("remove", key) for key in keys}
        effect = await self._in_force(lambda: all(map(self._has_read, given, given.values())))
        log.info("source %s: removed by a caller", pod)
        return SourcesTouched(pod=pod, sources=len(keys), effect=effect)

    async def clear(self, pod: str, dp_rank: int | None) -> SourcesTouched:
        """New generation, everything of it gone."""
        keys = self._parts.roster.may_clear(pod, dp_rank)
        given = {key: await self._give("clear", key) for key in keys}
        effect = await self._in_force(lambda: all(map(self._has_read, given, given.values())))
        log.info("source %s: cleared by a caller", pod)
        return SourcesTouched(pod=pod, sources=len(keys), effect=effect)

    async def cordon(self, pod: str, dp_rank: int | None, *, cordoned: bool) -> SourcesTouched:
        """Set or lift the cordon."""
        sources = self._parts.registry.named(pod, dp_rank)
        for source in sources:
            await self._give("edit", source.descriptor.id, Registered(source.descriptor, cordoned))
        keys = [source.descriptor.id for source in sources]
        effect = await self._in_force(lambda: all(self._is_cordoned(key) in {cordoned, None} for key in keys))
        return SourcesTouched(pod=pod, sources=len(sources), effect=effect)

    # -- of this replica ----------------------------------------------------------------------------------------------

    def register_later(self, descriptor: Descriptor, *, cordoned: bool) -> None:
        """A source that came by its topic is in force already; the registry shall know it."""
        packed = pack_registered(Registered(descriptor, cordoned))
        edit = command(self._parts, "edit", descriptor.id, packed)
        self._post(_Later(edit, command(self._parts, "restore", descriptor.id, packed)))

    def remove_later(self, source: SourceId) -> None:
        """One that came by its topic is gone for good."""
        self._post(_Later(command(self._parts, "remove", source)))

    async def run(self) -> None:
        """Hand over what waits, until cancelled."""
        while True:
            await self._posted.wait()
            while self._outbox:
                later = self._outbox[0]
                try:
                    reply = await self._hand_over(later.command)
                    if isinstance(reply, NoSuchSource) and later.otherwise is not None:
                        await self._hand_over(later.otherwise)
                except StoreFailure:
                    await asyncio.sleep(RETRY_S)
                    continue
                if self._outbox and self._outbox[0] is later:
                    self._outbox.popleft()
            self._posted.clear()

    # -- how ----------------------------------------------------------------------------------------------------------

    def _post(self, later: _Later) -> None:
        self._outbox.append(later)
        self._posted.set()

    async def _hand_over(self, order: Command) -> Commanded | NoSuchSource | WrongType:
        return await command_store(self._parts, self._keys[self._parts.partition_of(order.source)], order)

    async def _give(self, verb: Verb, source: SourceId, registered: Registered | None = None) -> Commanded | None:
        """Give a command; None where the registry does not have the source. Raises StoreFailure."""
        packed = b"" if registered is None else pack_registered(registered)
        reply = await self._hand_over(command(self._parts, verb, source, packed))
        if isinstance(reply, NoSuchSource):
            return None
        if not isinstance(reply, Commanded):
            raise StoreFailure("refused", "a key of the registry is in use for something else")
        self._parts.ingest.note_generation(reply.generation)
        return reply

    async def _in_force(self, holds: Callable[[], bool]) -> Effect:
        clock = self._parts.clock
        until = clock.now() + IN_FORCE_S
        while not holds():
            if clock.now() >= until:
                return "accepted"
            await asyncio.sleep(LOOK_S)
        return "done"

    def _has(self, descriptor: Descriptor) -> bool:
        source = self._parts.registry.sources.get(descriptor.id)
        return source is not None and source.descriptor == descriptor

    def _has_read(self, key: SourceId, given: Commanded | None) -> bool:
        """Whether this replica has read that command back from the stream, or knows no such source (any more)."""
        source = self._parts.registry.sources.get(key)
        if source is None or given is None:
            return True
        owner = self._owners.get(self._parts.partition_of(key))
        if owner is not None and owner.role == "owner":
            return owner.commanded.get(key, 0) >= given.generation
        return source.facts.generation >= given.generation

    def _is_cordoned(self, key: SourceId) -> bool | None:
        source = self._parts.registry.sources.get(key)
        return None if source is None else source.facts.cordoned
