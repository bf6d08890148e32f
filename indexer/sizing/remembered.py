"""What a deployment remembers of its answers, so that they can be trusted: at most, and by default. Pure.

All of it is bounded by settings or by how it is stored; where lookups are so few that less comes together, less is
planned for. Each request is taken for reported twice: as routed, and with what the engine reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from indexer.sizing.formulas import Wanted

MIB: Final = 1024**2
ANSWERS_S: Final = 600.0
ANSWERS_BYTES: Final = 64 * MIB
"""`feedback.answers_s` and `answers_bytes`, by default."""
ANSWER_BYTES: Final = 600
"""And one for each source of the model."""
PROMPT_S: Final = 10.0
PROMPTS_BYTES: Final = 16 * MIB
"""`feedback.prompt_s` and `prompt_bytes`, by default."""
PROMPT_BYTES: Final = 500
"""And the tokens."""
TOKEN_BYTES: Final = 4
EXPECTED_BLOCKS: Final = 1_000_000
"""`limits.speculative_blocks`, by default."""
EXPECTED_S: Final = 10.0
"""A block is expected so long at most."""
EXPECTED_BYTES: Final = 150
"""Where prompts are long; decisions/0030."""
BLOCK_TOKENS: Final = 16
REMOVALS: Final = 262_144
"""`limits.removals_kept`, by default."""
REMOVAL_BYTES: Final = 16
REPORTS_KIB: Final = 28
"""A source that has reports of both kinds: its windows."""
COUNTS_KIB: Final = 1
"""A source's counts in the store."""
HINT_TICK_S: Final = 0.02
HINT_ENTRIES: Final = 356
"""Of a partition, with those that the server has not trimmed yet."""
HINT_ENTRY_BYTES: Final = 32 * 1024
HINT_BYTES: Final = 64
"""A hint beside its hashes."""
HASH_BYTES: Final = 8


class Remembered(NamedTuple):
    """In MiB, and how it comes about."""

    mib: float
    how: str


def answers(wanted: Wanted, replicas: int) -> Remembered:
    """Of one of so many replicas: what it answered, and the prompts."""
    rate, each = wanted.lookups / replicas, ANSWER_BYTES + wanted.engines / wanted.models
    records = min(ANSWERS_BYTES, rate * ANSWERS_S * each)
    prompts = min(PROMPTS_BYTES, rate * PROMPT_S * (PROMPT_BYTES + wanted.prompt_tokens * TOKEN_BYTES))
    return Remembered(
        (records + prompts) / MIB,
        f"{rate:,.0f} lookups/s: {each:,.0f} bytes each for {ANSWERS_S:.0f} s, at most {ANSWERS_BYTES // MIB} MiB "
        f"(feedback.answers_bytes), and prompts for {PROMPT_S:.0f} s, at most {PROMPTS_BYTES // MIB} MiB "
        "(feedback.prompt_bytes)",
    )


def expected(wanted: Wanted) -> Remembered:
    """Of each replica, which hears of all routed prompts; and the latest removals."""
    blocks = min(EXPECTED_BLOCKS, wanted.lookups * EXPECTED_S * wanted.prompt_tokens / BLOCK_TOKENS)
    return Remembered(
        (blocks * EXPECTED_BYTES + REMOVALS * REMOVAL_BYTES) / MIB,
        f"{blocks:,.0f} blocks × {EXPECTED_BYTES} bytes, at most {EXPECTED_BLOCKS:,} (limits.speculative_blocks), and "
        f"{REMOVALS:,} removals × {REMOVAL_BYTES}",
    )


def stored(wanted: Wanted, replicas: int, partitions: int) -> Remembered:
    """In the store: hints of routed prompts, and what was counted of sources."""
    at_once = max(1.0, wanted.lookups / replicas / partitions * HINT_TICK_S) if wanted.lookups else 0.0
    entry = min(HINT_ENTRY_BYTES, at_once * (HINT_BYTES + wanted.prompt_tokens / BLOCK_TOKENS * HASH_BYTES))
    return Remembered(
        (partitions * HINT_ENTRIES * entry + wanted.engines * COUNTS_KIB * 1024) / MIB,
        f"{partitions} partitions × {HINT_ENTRIES} entries × {entry:,.0f} bytes, and {wanted.engines} sources × "
        f"{COUNTS_KIB} KiB of counts",
    )
