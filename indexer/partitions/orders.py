"""[I/O] Commands that are given at this replica: checked against what it knows, made durable, and awaited.

A command is durable when its script has run. It is in force when this replica has read it back from the control stream,
as all others do, and the owner's ticks tell that it has, too. Where that takes longer than `IN_FORCE_S`, as while
nobody owns the partition, the caller is told that it is accepted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from indexer.errors import SourceConflictError
from indexer.partitions.commanding import CONTENDED, TRIES, answered, as_it_stands, command, command_store
from indexer.roster import cordon_event, differs, same_but_origin
from indexer.store.commands import Command, Commanded, NoSuchSource, OtherRegistration
from indexer.store.entries import START, Position
from indexer.store.failures import StoreFailure
from indexer.store.registered import Registered, pack_registered
from schemas.rest import Effect, SourceRegistered, SourcesReplaced, SourcesTouched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from indexer.index.source import SourceIndex
    from indexer.model import Descriptor, SourceId
    from indexer.partitions.followers import Followers
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.roster import Exchange
    from indexer.store.commands import Outcome, Verb
    from indexer.store.layout import PartitionKeys

Reply = Commanded | OtherRegistration | None

IN_FORCE_S: Final = 2.0
LOOK_S: Final = 0.002
RETRY_S: Final = 0.5
OUTBOX_MAX: Final = 8_192
ELSEWHERE: Final = "ask a replica that follows all models"


class _Later(NamedTuple):
    """A command that is retried until the store has it; `otherwise` follows where the registry has no such source."""

    command: Command
    otherwise: Command | None = None


class Orders:
    """`keys` of all partitions; `owners` where this replica owns what it can, `followers` of the others."""

    def __init__(
        self, parts: Parts, keys: Mapping[int, PartitionKeys], owners: Mapping[int, Owner], followers: Followers
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owners = owners
        self._followers = followers
        self._outbox: deque[_Later] = deque(maxlen=OUTBOX_MAX)
        self._posted = asyncio.Event()

    # -- of callers ---------------------------------------------------------------------------------------------------

    async def add(self, descriptor: Descriptor, *, by: str) -> SourceRegistered:
        """Register. Raises as `Roster.add`, and StoreFailure."""
        roster = self._parts.roster
        self._refuse_other_model(descriptor)
        if roster.stands(descriptor):
            return SourceRegistered(pod=descriptor.pod, dp_rank=descriptor.dp_rank, result="same")
        reply = await self._give("put", descriptor.id, Registered(descriptor), expected=b"")
        if isinstance(reply, OtherRegistration):
            _refuse_other(reply, descriptor)  # not known here yet: nothing is changed
        created = isinstance(reply, Commanded) and reply.changed
        effect = await self._in_force({descriptor.id: reply}, lambda: self._has(descriptor))
        if created:
            roster.say_registered(descriptor, by)
        result: Literal["created", "same"] = "created" if created else "same"
        return SourceRegistered(pod=descriptor.pod, dp_rank=descriptor.dp_rank, result=result, effect=effect)

    async def replace(
        self, descriptors: Sequence[Descriptor], *, max_removals: int | None, tenant: str | None = None, by: str
    ) -> SourcesReplaced:
        """Make these the whole set of origin `api`, of that tenant. Checked as a whole; then one command a source."""
        roster = self._parts.roster
        if self._followers.models is not None:
            rule = "this replica follows chosen models and does not know all sources"
            raise SourceConflictError("sources", rule, hint=ELSEWHERE)
        exchange = roster.plan_exchange(descriptors, max_removals=max_removals, tenant=tenant)
        removed = {key: await self._give("remove", key, counts=key in exchange.counted) for key in exchange.removed}
        put = {descriptor.id: await self._exchange(descriptor, exchange, tenant) for descriptor in exchange.fresh}
        effect = await self._in_force(
            removed | put,
            lambda: all(map(self._has, exchange.fresh)) and all(map(self._has_read, removed, removed.values())),
        )
        roster.say_exchanged(exchange, by)
        answer = exchange.answer
        return SourcesReplaced(added=answer.added, kept=answer.kept, removed=answer.removed, effect=effect)

    async def remove(self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str) -> SourcesTouched:
        """Remove one rank or all."""
        self._refuse_half_known(pod)
        touched = self._parts.roster.may_remove(pod, dp_rank, tenant)
        given = {key: await self._give("remove", key, counts=key in touched.counted) for key in touched.keys}
        effect = await self._in_force(given, lambda: all(map(self._has_read, given, given.values())))
        self._parts.roster.say_done(touched.keys, "source_removed", by)
        return SourcesTouched(pod=pod, sources=len(given), effect=effect)

    async def clear(self, pod: str, dp_rank: int | None, *, tenant: str | None = None, by: str) -> SourcesTouched:
        """New generation, everything of it gone."""
        self._refuse_half_known(pod)
        touched = self._parts.roster.may_clear(pod, dp_rank, tenant)
        given = {key: await self._give("clear", key, counts=key in touched.counted) for key in touched.keys}
        effect = await self._in_force(given, lambda: all(map(self._has_read, given, given.values())))
        self._parts.roster.say_done(touched.keys, "source_cleared", by)
        return SourcesTouched(pod=pod, sources=len(given), effect=effect)

    async def cordon(
        self, pod: str, dp_rank: int | None, *, cordoned: bool, tenant: str | None = None, by: str
    ) -> SourcesTouched:
        """Set or lift the cordon."""
        self._refuse_half_known(pod)
        sources = self._parts.registry.named(pod, dp_rank, tenant)
        given = {source.descriptor.id: await self._cordon(source, cordoned=cordoned) for source in sources}
        effect = await self._in_force(given, lambda: all(self._is_cordoned(key) in {cordoned, None} for key in given))
        self._parts.roster.say_done(given, cordon_event(cordoned=cordoned), by)
        return SourcesTouched(pod=pod, sources=len(sources), effect=effect)

    async def doubt(self, source: SourceId, generation: int) -> None:
        """What is known of it in that generation is not to be believed, its owner is told. Raises StoreFailure."""
        order = command(self._parts, "doubt", source, known_generation=generation)
        await answered(self._parts, self._keys[self._parts.partition_of(source)], order)

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

    # -- of a replica that follows chosen models ----------------------------------------------------------------------

    def _refuse_other_model(self, descriptor: Descriptor) -> None:
        """A source that would not be followed here would never be seen to be in force."""
        models = self._followers.models
        if models is not None and descriptor.model not in models:
            raise SourceConflictError(
                "model", f"this replica follows {', '.join(sorted(models))} alone", hint=ELSEWHERE
            )

    def _refuse_half_known(self, pod: str) -> None:
        """Some of its ranks are known here, and some not: all or nothing."""
        if self._followers.passes_over(pod):
            raise SourceConflictError(
                "pod", f"{pod!r} has sources of models that this replica does not follow", hint=ELSEWHERE
            )

    # -- how ----------------------------------------------------------------------------------------------------------

    def _post(self, later: _Later) -> None:
        self._outbox.append(later)
        self._posted.set()

    async def _hand_over(self, order: Command) -> Outcome:
        return await command_store(self._parts, self._keys[self._parts.partition_of(order.source)], order)

    async def _give(
        self,
        verb: Verb,
        source: SourceId,
        registered: Registered | None = None,
        *,
        expected: bytes | None = None,
        counts: bool = False,
    ) -> Reply:
        """Give a command; None where the registry does not have the source. Raises StoreFailure."""
        packed = b"" if registered is None else pack_registered(registered)
        order = command(self._parts, verb, source, packed, expected=expected, counts=counts)
        reply = await answered(self._parts, self._keys[self._parts.partition_of(source)], order)
        if isinstance(reply, NoSuchSource):
            return None
        if isinstance(reply, Commanded):
            self._parts.ingest.note_generation(reply.generation)
        return reply

    async def _exchange(self, descriptor: Descriptor, exchange: Exchange, tenant: str | None) -> Reply:
        """Put one of a whole list, in place of what stands, though it be a registration that is not known here yet."""
        cordoned, expected = descriptor.id in exchange.cordoned, b""
        for _ in range(TRIES):
            registered, counts = Registered(descriptor, cordoned), descriptor.id in exchange.counted
            reply = await self._give("put", descriptor.id, registered, expected=expected, counts=counts)
            if not isinstance(reply, OtherRegistration):
                return reply
            stands = as_it_stands(descriptor.id, reply.stands)
            if stands is not None:
                if same_but_origin(stands.descriptor, descriptor):
                    return reply
                if stands.descriptor.origin != "api" or tenant not in {None, stands.descriptor.tenant}:
                    _refuse_other(reply, descriptor)
                cordoned = stands.cordoned
            expected = reply.stands
        raise StoreFailure("refused", CONTENDED)

    async def _cordon(self, source: SourceIndex, *, cordoned: bool) -> Reply:
        """Of the registration that stands, though it be one that is not known here yet."""
        stands = Registered.of(source)
        expected, key = pack_registered(stands), source.descriptor.id
        for _ in range(TRIES):
            wanted = msgspec.structs.replace(stands, cordoned=cordoned)
            reply = await self._give("edit", key, wanted, expected=expected)
            if not isinstance(reply, OtherRegistration):
                return reply
            stands = as_it_stands(key, reply.stands) or stands
            expected = reply.stands
        raise StoreFailure("refused", CONTENDED)

    async def _in_force(self, given: Mapping[SourceId, Reply], holds: Callable[[], bool]) -> Effect:
        """Wait until all are obeyed, and it shows here."""
        clock = self._parts.clock
        until = clock.now() + IN_FORCE_S
        entries: dict[int, Position] = {}
        for source, reply in given.items():
            if isinstance(reply, Commanded) and reply.entry is not None:
                number = self._parts.partition_of(source)
                entries[number] = max(entries.get(number, START), Position.parse(reply.entry))
        while not (all(map(self._is_obeyed, entries, entries.values())) and holds()):
            if clock.now() >= until:
                return "accepted"
            await asyncio.sleep(LOOK_S)
        return "done"

    def _is_obeyed(self, number: int, entry: Position) -> bool:
        """Whether a command is in force at the partition's owner, and here."""
        owner = self._owners.get(number)
        if owner is not None and owner.role == "owner":
            return Position.parse(owner.control_after) >= entry and owner.lease_until > self._parts.clock.now()
        return self._followers.have_obeyed(number, entry)

    def _has(self, descriptor: Descriptor) -> bool:
        source = self._parts.registry.sources.get(descriptor.id)
        return source is not None and same_but_origin(source.descriptor, descriptor)

    def _has_read(self, key: SourceId, given: Reply) -> bool:
        """Whether nothing of before that command counts here, or no such source is known (any more)."""
        source = self._parts.registry.sources.get(key)
        return source is None or not isinstance(given, Commanded) or source.facts.generation >= given.generation

    def _is_cordoned(self, key: SourceId) -> bool | None:
        source = self._parts.registry.sources.get(key)
        return None if source is None else source.facts.cordoned


def _refuse_other(reply: OtherRegistration, wanted: Descriptor) -> None:
    """Raises SourceConflictError where what stands differs, as the roster does of what is known here."""
    stands = as_it_stands(wanted.id, reply.stands)
    if stands is None:
        raise StoreFailure("refused", "the registration that stands cannot be read")
    if not same_but_origin(stands.descriptor, wanted):
        raise differs(stands.descriptor, wanted)
