"""Moments as people and programs are told them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(wall_s: float) -> str:
    """Seconds of wall time as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
