"""What a test may tell `Core` besides the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from indexer.model import GapPolicy, Tier


class CoreOptions(TypedDict, total=False):
    """Options of `indexer.ingest.Ingest`."""

    gap_policy: GapPolicy
    count_copies: bool
    orphans_max: int
    tier_ttls: Mapping[Tier, float]
    silent_block_sizes: Mapping[str, int]
