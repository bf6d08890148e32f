"""What an explanation of one source is decided from. Values only; ages are seconds before the question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from indexer.index.removals import Why
    from schemas.lookup import PodEntry


class Gone(NamedTuple):
    """The last time that the missing block went."""

    why: Why
    tier: str
    group: int
    ago_s: float
    ttl_s: float | None
    """Of its tier, where entries have one."""


class Elsewhere(NamedTuple):
    """More of the same tokens is held under another identity."""

    how: Literal["adapter", "salt"]
    adapter: str | None
    tokens: int


How = Literal["engine_clear", "operator_clear", "gap_clear", "forgotten", "restart"]


class Began(NamedTuple):
    """What began its present life, and how long ago where that is known."""

    how: How
    ago_s: float | None


class Lost(NamedTuple):
    """Gaps that were kept in this life, at least; 0 where only that there were some is known."""

    gaps: int
    batches: int


NOTHING_LOST: Final = Lost(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """The first block that a source does not hold, and what can be seen of it."""

    block: int
    hash: int
    groups: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """The cache groups that hold it, and those that would have to; None where none does."""
    gone: Gone | None = None
    elsewhere: Elsewhere | None = None
    waits: bool = False
    """A block with its content waits for its parent."""
    starts_held_by: tuple[str, ...] = ()
    """Other pods that hold the prompt's first block; told where this one does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of one listed source at one moment. `entry`: what a lookup says of it."""

    entry: PodEntry
    prompt_tokens: int
    partial: bool = False
    blocks: int | None = None
    """Whole blocks of the prompt; None where its block size is not known."""
    miss: Miss | None = None
    removals_kept: bool = True
    removals_known_s: float | None = None
    """All removals of the last so many seconds are known; None: all of this life."""
    blocks_held: int = 0
    waiting: int = 0
    silent_s: float | None = None
    complete: bool = True
    joined_at: int | None = None
    """Its first batch that is known here, where that was not the first."""
    doubts: AbstractSet[str] = field(default_factory=frozenset)
    shortfalls: AbstractSet[str] = field(default_factory=frozenset)
    rule_missing: bool = False
    begins_salted: bool = False
    begins_plain: bool = False
    """Beginnings of prompts were announced with a cache salt, and without."""
    lost: Lost = NOTHING_LOST
    began: Began | None = None
    followed: bool = False
    """Another replica applies its events."""
    changed: bool = False
    """It holds something else by now than when the lookup was answered."""
