"""What an engine would really skip of a prompt of which it holds the beginning. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.score.hybrid import hybrid_tokens
from indexer.score.prefix import reusable_blocks

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex
    from indexer.model import Match


def reusable_tokens(source: SourceIndex, size: int, match: Match, prompt_tokens: int, *, partial: bool) -> int:
    """Its last token is always computed, and in hybrid models the rules of all groups must hold. `size`: of a block."""
    blocks = reusable_blocks(match.held.matched, size, prompt_tokens, partial=partial)
    rules = source.rules
    if not rules:
        return blocks * size
    return hybrid_tokens(blocks * size, size, rules, match.runs, source.slot, source.lane_table.groups_held)
