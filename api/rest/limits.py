"""What callers of the REST face may take: every number, and what happens there."""

from __future__ import annotations

import msgspec


class RestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server: settings of the same names (`limits.*`) where there are such.

    Where callers share one, none gets all of it (api/admission.py).
    """

    body_bytes: int = 16 * 2**20
    """Of one body, before and after decompression. Beyond: 413."""
    tokens: int = 2_097_152
    """Of one prompt told by ids. Beyond: 422."""
    batch: int = 256
    """Lookups in one batch. Beyond: 422. Their prompts together may hold `tokens`; items beyond: 422, each alone."""
    batches_waiting: int = 32
    """Batches at once. Beyond: 429 with Retry-After."""
    explanations: int = 32
    """Of misses, at once. Beyond: 429 with Retry-After."""
    connections: int = 4_096
    """Open at once. Beyond: 429 with Retry-After to the first request, and the connection ends."""
    connections_per_caller: int = 1_024
    """The same from one address (IPv6: one /64)."""
    handshakes: int = 512
    """TLS handshakes under way, which are no connections yet. Beyond: the connection ends."""
    head_bytes: int = 64 * 2**10
    """Request line and headers, counted in whole reads. Several times what gateways add. Beyond: 431."""
    lookups_waiting: int = 1_024
    """Lookups at once, by REST and picks together, whose body still arrives in pieces or is being read. Beyond: 429
    with Retry-After."""
    texts_waiting: int = 256
    """Lookups that wait for the tokens of their text, by whichever door, which are not counted above. Beyond: 429 with
    Retry-After."""
    sequence_waits: int = 1_024
    """The same of those that wait for a `min_sequence`."""
    sequence_wait_bytes: int = 64 * 2**20
    """Of the prompts of those that wait. Beyond: 429 with Retry-After."""
    pending_bytes: int = 256 * 2**20
    """Of unfinished bodies over all requests together. Beyond: 429 with Retry-After."""
    head_wait_s: float = 10.0
    """From the first byte of a head that does not come in one piece to its last. Beyond: the connection ends."""
    body_wait_s: float = 30.0
    """From a head to the last byte of its body. Beyond: 408."""
    unread_wait_s: float = 30.0
    """For a caller to take some of an answer. Beyond: the connection ends."""
    headers: int = 256
    """Of one request. Beyond: 431."""
