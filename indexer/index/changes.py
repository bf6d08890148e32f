"""What of one source may differ from what was last written down. Pure.

Noted where maps and presence change, before they do: so a fault of ours half-way through an event leaves a note too
many and never one too few. A writer takes the notes and writes what each noted hash stands for now, so it does not
matter how often or in which order it changed meanwhile, nor whether it changed at all.

A kept gap changes the meaning of all entries and notes none: what is written carries its era (store/segments.py).
"""

from __future__ import annotations


class Changes:
    """Notes of one generation. In memory mode there are none, and noting costs one comparison an event."""

    __slots__ = ("placed", "tokens", "waiting")

    def __init__(self) -> None:
        self.placed: set[int] = set()
        """Engine hashes whose placed entry (token hash, copies) may differ."""
        self.waiting: set[int] = set()
        """Engine hashes whose waiting entry (parked, or without tokens) may differ."""
        self.tokens: set[int] = set()
        """Token hashes whose lanes may differ."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.placed or self.waiting or self.tokens)
