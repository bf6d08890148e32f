"""What stores claim about their group, and which claim to believe. Pure.

A group's kind and window do not change while an engine lives, so every store of it says the
same. One damaged store must cost only itself (P11): believed at once, it could take the main group out of the walk,
and everything the source holds with it, until a restart. So a claim that contradicts what at least two stores agreed
on is believed only when the group's next store repeats it; alone it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.model import FULL_KINDS, OTHER_KINDS, WINDOW_KINDS, Tier

if TYPE_CHECKING:
    from indexer.model import BlocksStored, GroupInfo

KNOWN_KINDS: Final = FULL_KINDS | WINDOW_KINDS | OTHER_KINDS
MAIN: Final = "main"
"""The kind of a group that holds whole prefixes, whatever engines call it: group 0 of those that name no kinds, too."""


class Claim(NamedTuple):
    """What a store says of its group; `kind` None or `window` None: nothing."""

    kind: str | None
    window: int | None

    def contradicts(self, other: Claim) -> bool:
        """Whether both cannot be true."""
        return (self.kind is not None and other.kind is not None and self.kind != other.kind) or (
            self.window is not None and other.window is not None and self.window != other.window
        )


class GroupClaims:
    """The claims about the groups of one engine process. At most as many groups as are learnt at all."""

    __slots__ = ("agreed", "rivals")

    def __init__(self) -> None:
        self.agreed: set[int] = set()
        self.rivals: dict[int, Claim] = {}

    def believes(self, event: BlocksStored, known: GroupInfo) -> bool:
        """Whether to take in what a store says of a group of which `known` is believed."""
        group = event.group
        claim = claim_of(event)
        believed = Claim(_kind(group, known.kind), known.window)
        if not claim.contradicts(believed):
            if claim.kind is not None and not event.continues:
                self.agreed.add(group)
                self.rivals.pop(group, None)
            return True
        if event.continues:  # refused like the first part: no event repeats itself
            return False
        unheard_of = event.kind is not None and event.kind not in KNOWN_KINDS
        if group in self.agreed or (unheard_of and (believed.kind == MAIN or believed.kind in KNOWN_KINDS)):
            if self.rivals.get(group) != claim:
                self.rivals[group] = claim
                return False
            self.agreed.discard(group)
            del self.rivals[group]
        return True


def claim_of(event: BlocksStored) -> Claim:
    """What this store says. Placeholders of connectors name no kind of any group: only GPU stores say "none"."""
    if event.kind is None and (event.tier is not Tier.GPU or not event.tokens):
        return Claim(None, event.window)
    return Claim(_kind(event.group, event.kind), event.window)


def is_main(group: int, kind: str | None) -> bool:
    """Full attention by kind; engines that name no kinds have one group, number 0."""
    return kind in FULL_KINDS or (kind is None and group == 0)


def _kind(group: int, kind: str | None) -> str | None:
    return MAIN if is_main(group, kind) else kind
