"""What each recorded engine held after each of its messages, as its own events say it. Pure.

Naive on purpose, and sharing nothing with the index: engine hashes only, no token hash, no mirror. That it is right is
checked against the recorded engines' own answers wherever there is one (`checked`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.demo.trace import Probe, TraceMessage

BLOCK: Final = 16
"""Tokens; of all recordings."""
_batch: Final = msgspec.msgpack.decode


class Moment(NamedTuple):
    """The last message of one engine by then: which process of it, and which message; -1 before the first."""

    life: int
    sequence: int


class Cache:
    """One process of one engine, from its first message to its last."""

    def __init__(self) -> None:
        self._toggled: defaultdict[int, list[int]] = defaultdict(list)
        """By engine hash, the messages with which it came, went, came again, …"""
        self._copies: Counter[int] = Counter()
        self._after: dict[tuple[int | None, tuple[int, ...]], int] = {}
        """What follows a block, by that block's hash and the tokens that follow."""
        self.sizes: list[int] = []
        """Different blocks held, by message."""
        self.computed_again: int | None = None
        """The first message that stores several blocks at once that are held, while none was ever taken back."""
        self._takes_back = False

    def take(self, sequence: int, events: Iterable[dict[str, Any]]) -> None:
        """One message."""
        before: dict[int, bool] = {}
        for event in events:
            if event["type"] == "AllBlocksCleared":
                before |= {each: True for each in self._copies if each not in before}
                self._copies.clear()
                continue
            for each in event["block_hashes"]:
                before.setdefault(each, each in self._copies)
            if event["type"] == "BlockStored":
                self._store(event, sequence)
            else:
                self._takes_back = True
                self._remove(event["block_hashes"])
        for each, held in before.items():
            if held != (each in self._copies):
                self._toggled[each].append(sequence)
        self.sizes.append(len(self._copies))

    def _store(self, event: dict[str, Any], sequence: int) -> None:
        parent, tokens = event["parent_block_hash"], event["token_ids"]
        if sum(each in self._copies for each in event["block_hashes"]) > 1 and not self._takes_back:
            self.computed_again = sequence if self.computed_again is None else self.computed_again
        for index, each in enumerate(event["block_hashes"]):
            self._copies[each] += 1
            self._after[parent, tuple(tokens[index * BLOCK : (index + 1) * BLOCK])] = each
            parent = each

    def _remove(self, hashes: Iterable[int]) -> None:
        for each in hashes:
            self._copies[each] -= 1
            if self._copies[each] <= 0:
                del self._copies[each]

    def held(self, tokens: Sequence[int], sequence: int) -> int:
        """Tokens of a prompt that a request would have taken from the cache after that message.

        Whole blocks, and not the last token: the engine computes that one always.
        """
        parent = None
        most = (len(tokens) - 1) // BLOCK * BLOCK
        for begin in range(0, most, BLOCK):
            parent = self._after.get((parent, tuple(tokens[begin : begin + BLOCK])))
            if parent is None or not bisect_right(self._toggled[parent], sequence) % 2:
                return begin
        return max(0, most)


class Caches:
    """All engines of a recording, in all their lives."""

    def __init__(self, messages: Iterable[TraceMessage]) -> None:
        self._caches: defaultdict[tuple[int, int], Cache] = defaultdict(Cache)
        for message in messages:
            self._caches[message.pod, message.life].take(message.sequence, _batch(message.payload)[1])

    def held(self, pod: int, moment: Moment, tokens: Sequence[int]) -> int:
        """As `Cache.held`."""
        return self._caches[pod, moment.life].held(tokens, moment.sequence)

    def size(self, pod: int, moment: Moment) -> int:
        """Different blocks that the engine held then."""
        return self._caches[pod, moment.life].sizes[moment.sequence] if moment.sequence >= 0 else 0

    def has_computed_again(self, pod: int, moment: Moment) -> bool:
        """Whether it had by then stored what it was held to hold, and had taken nothing back."""
        first = self._caches[pod, moment.life].computed_again
        return first is not None and moment.sequence >= first

    def checked(self, probes: Iterable[Probe], prompts: Sequence[Sequence[int]]) -> Caches:
        """Itself, where it says at every recorded question what the engines said; AssertionError where it does not."""
        for probe in probes:
            for pod, (cached, at) in enumerate(zip(probe.cached, probe.at, strict=True)):
                held = self.held(pod, Moment(*at), prompts[probe.prompt])
                assert held == cached, f"n={probe.n} pod={pod}: {held} by its events, the engine says {cached}"
        return self
