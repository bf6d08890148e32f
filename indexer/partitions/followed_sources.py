"""The sources of one followed partition: what its registry and commands say. Does no I/O.

The registry of a store that was emptied, or restored from before a source came, has lost it. Its owner will put it
back, and until then nobody can say that it is gone: it stands, answers as stale, and goes only when a command takes it
out, when a command that was missed left its mark (a later generation without a map), or when nobody put it back for as
long as a source is retained.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from indexer.errors import IndexerError
from indexer.index.registry import is_redescribed
from indexer.partitions.followed import FollowedSource
from indexer.partitions.passed_over import PassedOver
from indexer.partitions.reading import NOWHERE, Held
from indexer.partitions.removals import Removals
from indexer.store.commands import read_command
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_name
from indexer.store.registered import unpack_registered, unpack_registration

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from collections.abc import Set as AbstractSet

    from indexer.index.mirror import Mirror
    from indexer.partitions.reading import Place, Reading
    from indexer.partitions.shelves import Shelves
    from indexer.store.loading import SourceState
    from indexer.store.registered import Registered

AT_ONCE: Final = 32
"""Sources that are gone through in one step."""


class FollowedSources:
    """By `layout.source_name`. `models`: those whose sources are followed; None: all."""

    def __init__(self, shelves: Shelves, mirror: Mirror, models: AbstractSet[str] | None = None) -> None:
        self.by_name: dict[bytes, FollowedSource] = {}
        self.passed_over = PassedOver(models, shelves)
        self.wanted: list[tuple[FollowedSource, Reading]] = []
        """Readings of maps, to be begun by whoever does the I/O."""
        self.refusals: Counter[str] = Counter()
        """What could not be understood or entered, by its kind."""
        self.held = Held()
        self._removed: Removals[bytes] = Removals()
        self._refused: dict[bytes, tuple[Registered, int]] = {}
        """Registrations that could not be entered."""
        self._are_left = False
        self._shelves = shelves
        self._mirror = mirror

    # -- the registry --------------------------------------------------------------------------------------------------

    def register_all(self, registry: Mapping[bytes, bytes], now: float) -> Generator[None, None, None]:
        """The registry as it is."""
        for nth, (name, data) in enumerate(registry.items()):
            if self._are_left:
                return
            try:
                self._register(name, unpack_registration(name, data), 0)
            except DamagedValue as damage:
                self.refuse(damage.what)
            if nth % AT_ONCE == AT_ONCE - 1:
                yield
        self.passed_over.keep(registry)
        for name, source in list(self.by_name.items()):
            self._note_missing(name, source, None if name in registry else now)

    def _note_missing(self, name: bytes, source: FollowedSource, now: float | None) -> None:
        if now is None:
            source.missing_since, source.removal_told = None, False
        elif source.removal_told:
            self._forget(name, source)
        elif source.missing_since is None:
            source.missing_since = now

    def missing(self) -> list[tuple[bytes, FollowedSource]]:
        """Those that the registry does not name, though no command said so."""
        return [(name, source) for name, source in self.by_name.items() if source.missing_since is not None]

    def forget_if_removed(self, name: bytes, source: FollowedSource, state: SourceState | None) -> None:
        """How a missing source stands in the store: was it removed?"""
        is_removed = state is not None and not state.complete and state.generation >= source.generation
        if is_removed and self.by_name.get(name) is source and source.missing_since is not None:
            self._forget(name, source)

    def forget_lost(self, now: float, retain_s: float) -> None:
        """Those that nobody put back, and no owner spoke of, for so long."""
        for name, source in self.missing():
            if now - max(source.missing_since or now, source.ticked_at) >= retain_s:
                self._forget(name, source)

    # -- commands ------------------------------------------------------------------------------------------------------

    def obey(self, command: Mapping[bytes, bytes]) -> bool:
        """A command of the control stream, in force at once. False where only the registry can tell what stands.

        Its generation may be known already, read from the store before the command was. One that is older than what is
        known may have been given before the registry was read, or just before the owner, who did not know yet, began
        another generation. Raises DamagedValue: then the registry is to be read, too.
        """
        given = read_command(command)
        if given.counted:
            self._shelves.clears(given.counted)
        name = source_name(given.source)
        source = self.by_name.get(name)
        if source is not None and given.generation < source.generation and given.verb in {"put", "remove"}:
            source.removal_told = given.verb == "remove"
            return False
        match given.verb:
            case "put" | "edit" | "restore":
                self._register(name, unpack_registered(given.descriptor), given.generation)
            case "remove":
                self._removed.note(name, given.generation)
                self._refused.pop(name, None)
                self.passed_over.forget(name)
                if source is not None:
                    self._forget(name, source)
            case "clear" if source is not None:
                source.end_before(given.generation)
            case _:
                pass  # of a source that is gone
        return True

    def _register(self, name: bytes, registered: Registered, generation: int) -> None:
        """A registration stands. With another descriptor it is another source, of which nothing is known yet."""
        if source_name(registered.descriptor.id) != name:
            raise DamagedValue("registration")
        source = self.by_name.get(name)
        if not self.passed_over.takes(registered.descriptor):
            self._pass_over(name, registered, source)
            return
        self.passed_over.forget(name)
        generation = max(generation, self._removed.get(name, 0))  # nothing of before counts (P4)
        if source is not None and is_redescribed(source.registered.descriptor, registered.descriptor):
            self._shelves.redescribe(source.standing, registered.descriptor)
        elif source is None or source.registered.descriptor != registered.descriptor:
            source = self._enter(name, registered, max(generation, 0 if source is None else source.generation))
            if source is None:
                return
        source.missing_since = None
        source.register(registered)
        source.end_before(generation)
        if not source.whole and source.reading is None:
            self.want(source)

    def _pass_over(self, name: bytes, registered: Registered, source: FollowedSource | None) -> None:
        """It is of a model that is not followed here, maybe since now: no more is kept than what it is called."""
        if source is not None:
            self._removed.note(name, source.generation)  # should it come back, nothing of before counts (P4)
            self._forget(name, source)
        self.passed_over.note(name, registered.descriptor)

    def _enter(self, name: bytes, registered: Registered, generation: int) -> FollowedSource | None:
        known = self.by_name.pop(name, None)
        if known is not None:
            known.leave()
        standing = self._shelves.get(registered.descriptor.id)
        if standing is None or standing.descriptor != registered.descriptor:
            try:
                standing = self._shelves.enter(registered, generation)
            except IndexerError as error:  # it contradicts another, or there are too many
                if name not in self._refused:
                    self.refuse(type(error).__name__)
                self._refused[name] = registered, generation
                if known is not None:
                    self._shelves.leave(registered.descriptor.id)
                return None
        source = self.by_name[name] = FollowedSource(standing, registered, self._mirror, self._shelves)
        return source

    def _forget(self, name: bytes, source: FollowedSource) -> None:
        del self.by_name[name]
        source.leave()
        self._shelves.leave(source.registered.descriptor.id)

    # -- readings of maps ----------------------------------------------------------------------------------------------

    def want(self, source: FollowedSource, least: Place = NOWHERE) -> None:
        """Its map is to be read (anew), and no copy older than `least` is of use."""
        if source.reading is not None:
            least = max(least, source.reading.least)
        self.wanted.append((source, source.want(least, self.held)))

    def want_all(self) -> Generator[None, None, None]:
        """Nothing is known to be whole any more."""
        for nth, source in enumerate(list(self.by_name.values())):
            if not source.gone:
                self.want(source)
            if nth % AT_ONCE == AT_ONCE - 1:
                yield

    def want_due(self, now: float) -> None:
        """Those whose reading came to nothing, and whose time has come."""
        for source in self.by_name.values():
            if not source.whole and source.reading is None and now >= source.due_at:
                self.want(source)

    def try_refused(self) -> None:
        """Those that contradicted another: names may have moved, and another partition has told of it by now."""
        for name, (registered, generation) in list(self._refused.items()):
            if name not in self.by_name:
                self._register(name, registered, generation)
            if name in self.by_name:
                del self._refused[name]

    def take_wanted(self) -> list[tuple[FollowedSource, Reading]]:
        """Readings to be begun."""
        wanted, self.wanted = self.wanted, []
        return wanted

    def refuse(self, kind: str) -> None:
        """Count something that could not be understood or entered."""
        self.refusals[kind] += 1

    def leave(self) -> None:
        """Nobody follows them any more. What stands stays as it is."""
        self._are_left = True
        self._refused.clear()
        for source in self.by_name.values():
            source.leave()
        self.passed_over.keep(())
        self.by_name.clear()
        self.wanted.clear()
