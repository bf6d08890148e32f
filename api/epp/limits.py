"""What gateways may take of the endpoint picker: every number, and what happens there."""

from __future__ import annotations

import msgspec


class EppLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server, out of the settings `epp.*` and `limits.*`.

    At none but the last a client is refused: beyond, its request goes on without a destination, or by load alone.
    """

    pick_ms: int = 50
    """From a request that is whole to where it goes, the tokens of its text included. Beyond: by load alone."""
    endpoints: int = 3
    """Told of one request, best first."""
    reads_usage: bool = False
    """Whether the end of responses is looked at for what was reused."""
    streams: int = 8_192
    """Requests at once, until their response is over where the gateway tells of it. Beyond: the stream ends in order,
    and the gateway goes on without us."""
    body_bytes: int = 16 * 2**20
    """Kept of one body. Beyond: what is there is read, and the rest is passed on as it comes."""
    held_bytes: int = 256 * 2**20
    """Of all bodies that are kept. Beyond: as above."""
    tokens: int = 2_097_152
    """Of one prompt told by ids. Beyond: by load alone."""
    unread_wait_s: float = 30.0
    """For a gateway to take an answer. Beyond: its stream ends."""

    shed_above: float | None = None
    """Requests at the least busy endpoint. Beyond: 429, which is the one bound at which a client is refused."""

    @property
    def message_bytes(self) -> int:
        """Of one message: a gateway that buffers sends a body as one, and its own limit comes first."""
        return 4 * self.body_bytes
