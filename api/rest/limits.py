"""What callers of the REST face may take: every number, and what happens there (style rule 7)."""

from __future__ import annotations

import msgspec


class RestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server. The first three are settings (`limits.*`); the others have no reason to differ."""

    body_bytes: int = 16 * 2**20
    """Of one body, before and after decompression. Beyond: 413."""
    tokens: int = 2_097_152
    """Of one prompt told by ids. Beyond: 422."""
    batch: int = 256
    """Lookups in one batch. Beyond: 422. Their prompts together may hold `tokens`; items beyond: 422, each alone."""
    batches_waiting: int = 32
    """Batches at once. Beyond: 429 with Retry-After."""
    lookups_waiting: int = 1_024
    """Lookups at once, those whose body still arrives included. Beyond: 429 with Retry-After."""
    sequence_waits: int = 1_024
    """Lookups that wait for a `min_sequence`, which are not counted above. Beyond: 429 with Retry-After."""
    sequence_wait_bytes: int = 64 * 2**20
    """Of the prompts of those that wait. Beyond: 429 with Retry-After."""
    pending_bytes: int = 256 * 2**20
    """Of unfinished bodies over all requests together. Beyond: 429 with Retry-After."""
    body_wait_s: float = 30.0
    """From the first part of a body to its last. Beyond: 408."""
