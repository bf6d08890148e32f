"""What callers of the gRPC face may take: every number, and what happens there."""

from __future__ import annotations

import msgspec


class RpcLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one server: settings of the same names (`limits.*`) where there are such.

    Beyond each of them: RESOURCE_EXHAUSTED, unless it says otherwise. Where callers share one, none gets all of it
    (api/admission.py).
    """

    body_bytes: int = 16 * 2**20
    """Of one message."""
    tokens: int = 2_097_152
    """Of one prompt told by ids. Beyond: INVALID_ARGUMENT."""
    arriving: int = 1_024
    """Calls at once whose message is not whole."""
    body_wait_s: float = 30.0
    """For a call's message to be whole. Beyond: ABORTED."""
    pending_bytes: int = 256 * 2**20
    """Of messages that do not come at once, each counted as `body_bytes`; together with unfinished bodies of REST."""
    texts_waiting: int = 256
    """Lookups at once that wait for the tokens of a text; this and the next two count those of REST, too."""
    sequence_waits: int = 1_024
    """Lookups at once that wait for a `min_sequence`."""
    sequence_wait_bytes: int = 64 * 2**20
    """Of the prompts of those."""
    batches_waiting: int = 32
    """Batches at once, until their answer is taken."""
    batch: int = 256
    """Lookups in one batch. Beyond: INVALID_ARGUMENT."""
    streams: int = 256
    """Lookup streams at once. Each holds one question at a time."""
    stream_idle_s: float = 300.0
    """A stream that is neither written to nor read from for so long ends: ABORTED."""
    watchers: int = 128
    """Watchers of sources at once."""
    watch_stall_s: float = 30.0
    """A watcher that reads nothing for so long ends: ABORTED."""
    listed: int = 1_000
    """Sources in one answer; the rest is on the next page."""
    metadata_bytes: int = 16 * 2**10
    """Of one call's headers."""
    connection_streams: int = 1_024
    """Calls at once on one connection; more wait at the caller. As many as may wait here in all: callers that keep to a
    lower number have calls refused all the same (UNAVAILABLE), since gRPC still counts those that have just ended."""
    other_calls: int = 64
    """Lists of sources and conversations of reflection at once."""
    keepalive_s: float = 30.0
    """A silent connection is asked so often whether it lives."""
    keepalive_wait_s: float = 10.0
    """Without a reply for so long its calls end."""
    ping_min_s: float = 5.0
    """A caller that pings more often without need loses its connection."""
    handshake_s: float = 10.0
    """From a new connection to its first frame. Beyond: it is closed."""

    @property
    def calls(self) -> int:
        """All calls at once, of whatever method, until the last of their answer is sent."""
        return (
            self.arriving
            + self.texts_waiting
            + self.sequence_waits
            + self.batches_waiting
            + self.streams
            + self.watchers
            + self.other_calls
        )
