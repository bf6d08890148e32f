"""Why an engine reused something else of a prompt than was answered, as far as that can be known. Pure.

A closed list, looked at in this order: what the caller's own report shows, then what happened to the source since, then
what was known to be uncertain already. The first that explains it is the cause; `unknown` is what should worry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.receipts.answer import Predicted

MismatchCause = Literal[
    "template",
    "adapter",
    "salt",
    "block_size",
    "last_token",
    "restart",
    "clear",
    "approximate",
    "gap",
    "tier",
    "unannounced",
    "stale",
    "incomplete",
    "hybrid_rule",
    "eviction_in_flight",
    "store_in_flight",
    "unknown",
]
CAUSES: Final[tuple[MismatchCause, ...]] = get_args(MismatchCause)
NOT_ITS_OWN: Final[frozenset[MismatchCause]] = frozenset(
    {
        "template",
        "adapter",
        "salt",
        "restart",
        "clear",
        "approximate",
        "gap",
        "stale",
        "eviction_in_flight",
        "store_in_flight",
    }
)
"""Causes that say nothing against what is known of the source now: the caller asked something else, or it was known
to be uncertain, or true when it was said."""


class Compared(NamedTuple):
    """One answer beside what came of it. `marks`, `evicted`, `stored`: since it was given."""

    predicted: Predicted
    real_tokens: int
    asked_tokens: int
    """Length of the prompt in the lookup."""
    prompt_tokens: int
    """And in the engine, where that was told; else the same."""
    partial: bool
    other_adapter: bool
    other_salt: bool
    generation: int
    """The source's now."""
    marks: frozenset[str]
    """What happened to it: `restart`, `clear`, `gap`."""
    evicted: bool
    stored: bool
    approximate: bool = False
    """Its engine never announced anything: what was routed there was all that could be said."""

    @property
    def false_tokens(self) -> int:
        """Said to be reusable, and computed all the same."""
        return max(0, self.predicted.reusable_tokens - self.real_tokens)

    @property
    def lost_tokens(self) -> int:
        """Reused, and not known."""
        return max(0, self.real_tokens - self.predicted.reusable_tokens)


def cause_of(compared: Compared) -> MismatchCause | None:
    """Why the two differ; None where they do not."""
    if compared.predicted.reusable_tokens == compared.real_tokens:
        return None
    return next((cause for cause, explains in _EXPLANATIONS if explains(compared)), "unknown")


def _template(compared: Compared) -> bool:
    """The engine computed another prompt: what is asked for is cut out of it, or was rendered otherwise."""
    asked, seen = compared.asked_tokens, compared.prompt_tokens
    return seen < asked if compared.partial else seen != asked


def _block_size(compared: Compared) -> bool:
    """It reused what is no whole number of blocks; all but the last token is the rule of some engines."""
    size = compared.predicted.block_size
    return size is not None and compared.real_tokens % size != 0 and not _all_but_one(compared)


def _last_token(compared: Compared) -> bool:
    """It differs by the block that holds the prompt's last token, which one counts and the other does not."""
    said = compared.predicted
    if compared.lost_tokens:
        return compared.real_tokens <= said.matched_tokens or (
            _all_but_one(compared) and compared.prompt_tokens - said.matched_tokens <= 1
        )
    size = said.block_size or 1
    whole = compared.partial and said.reusable_tokens >= compared.prompt_tokens - 1
    return whole and compared.real_tokens == max(0, compared.prompt_tokens - 1) // size * size


def _all_but_one(compared: Compared) -> bool:
    return compared.real_tokens >= compared.prompt_tokens - 1


def _tier(compared: Compared) -> bool:
    """It reused what lay in GPU memory, and not what lay elsewhere."""
    said = compared.predicted
    gpu_tokens = min(said.gpu_tokens, said.reusable_tokens)
    return bool(compared.false_tokens) and gpu_tokens < said.reusable_tokens and compared.real_tokens == gpu_tokens


_EXPLANATIONS: Final[tuple[tuple[MismatchCause, Callable[[Compared], bool]], ...]] = (
    ("template", _template),
    ("adapter", lambda compared: compared.other_adapter),
    ("salt", lambda compared: compared.other_salt),
    ("last_token", _last_token),
    ("block_size", _block_size),
    ("clear", lambda compared: "clear" in compared.marks),
    ("restart", lambda compared: "restart" in compared.marks or compared.generation != compared.predicted.generation),
    ("approximate", lambda compared: compared.approximate),
    ("gap", lambda compared: "gap" in compared.marks or compared.predicted.trust.bound == "estimate"),
    ("tier", _tier),
    ("unannounced", lambda compared: compared.predicted.unannounced and compared.false_tokens > 0),
    ("stale", lambda compared: compared.predicted.trust.state in {"stale", "syncing"}),
    ("incomplete", lambda compared: compared.predicted.trust.bound == "lower" and compared.lost_tokens > 0),
    ("hybrid_rule", lambda compared: compared.predicted.trust.bound == "upper" and compared.false_tokens > 0),
    ("eviction_in_flight", lambda compared: compared.evicted and compared.false_tokens > 0),
    ("store_in_flight", lambda compared: compared.stored and compared.lost_tokens > 0),
)
