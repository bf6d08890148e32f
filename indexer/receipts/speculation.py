"""What sources are about to hold: blocks of prompts routed to them, until their events tell. Pure; time is given.

    receipt    a prompt was routed: the blocks that the source is not known to hold are expected of it
    deadline   they are expected no more; for WATCHED_S in all it is still looked whether the event comes, else a source
               that is slower than its deadlines would never be known to be
    confirmed  the last of them is held: the receipt ends, and how long that took is told
    life       a source's generation in its slot. With it all that is expected of it ends at once (P4): what is left
               of it is found by a mark that no other life has, and is cleared away in slices

Nothing of this is presence: what is expected never counts as held, and stands in no store.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from indexer.index.mirror import Mirror
    from indexer.model import Held, SourceId

WATCHED_S: Final = 10.0
"""The longest deadline: a later event says more about the engine's queue than about the prompt."""
RECEIPTS_MAX: Final = 65_536
CLEARED_IN_A_SLICE: Final = 1_024
LOOKED_AT_IN_A_SLICE: Final = 256
"""Each a fifth of a millisecond."""
WALKED_MAX: Final = 16_384
"""Blocks beyond what is held that one lookup goes through: 2 ms."""
BLOCKS_LIMIT: Final = "limits.speculative_blocks"
RECEIPTS_LIMIT: Final = "receipts.pending"
"""Names of limits, for the counter."""


class Life:
    """What is expected of one generation of a source. `taken`: block to the number of the newest receipt with it."""

    __slots__ = ("mark", "over", "slot", "taken")

    def __init__(self, slot: int, mark: int) -> None:
        self.slot = slot
        self.mark = mark
        self.taken: dict[int, int] = {}
        self.over = False


class Receipt:
    """One prompt, routed to one source. `about`: whose time it is that the event takes; None: nobody asks."""

    __slots__ = ("about", "hashes", "life", "number", "over", "routed_at", "until")

    def __init__(self, life: Life, number: int, routed_at: float, until: float, about: SourceId | None) -> None:
        self.life = life
        self.number = number
        self.routed_at = routed_at
        self.until = until
        self.about = about
        self.hashes = array("Q")
        self.over = False


class Confirmed(NamedTuple):
    """A receipt came true."""

    source: SourceId
    seconds: float


class _Ending(NamedTuple):
    """What is left to be cleared away: blocks of a receipt, from `at` on, or all of a life."""

    life: Life
    receipt: Receipt | None
    at: int


class Speculation:
    """All that is expected in one process. `reached` is told of limits, `confirmed` of receipts that came true."""

    def __init__(self, mirror: Mirror, *, blocks_max: int, reached: Callable[[str], None]) -> None:
        self.slots = 0
        """The slots of which anything is expected."""
        self.blocks = 0
        """Expected, each of one source."""
        self.confirmed: Callable[[Confirmed], None] = _ignore
        """Called with receipts about a source that came true."""
        self.expired: Callable[[], None] = _ignore_it
        """Called where such a receipt was watched for as long as any is, and its event did not come."""
        self._mirror = mirror
        mirror.ended = self.end
        self._blocks_max = blocks_max
        self._reached = reached
        self._lives: dict[int, Life] = {}
        self._marks_taken = 0
        self._masks: dict[int, int] = {}
        """Block to the marks of the lives that it is expected of."""
        self._in_receipts = 0
        self._receipts = 0
        self._numbers = 0
        self._due: list[tuple[float, int, Receipt]] = []
        self._watched: deque[tuple[Receipt, int]] = deque()
        """With the block whose event is waited for."""
        self._ending: deque[_Ending] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of anything that was expected."""
        return not (
            self._masks or self._ending or self._in_receipts or any(life.taken for life in self._lives.values())
        )

    # -- receipts ------------------------------------------------------------------------------------------------------

    def expect(self, slot: int, now: float, ttl_s: float, about: SourceId | None = None) -> Receipt | None:
        """A receipt without blocks yet; None where too many are open."""
        if self._receipts >= RECEIPTS_MAX:
            self._reached(RECEIPTS_LIMIT)
            self._end_next()
            if self._receipts >= RECEIPTS_MAX:
                return None
        life = self._lives.get(slot)
        if life is None:
            life = self._lives[slot] = self._begin(slot)
        self._numbers += 1
        self._receipts += 1
        receipt = Receipt(life, self._numbers, now, now + ttl_s, about)
        heappush(self._due, (receipt.until, receipt.number, receipt))
        return receipt

    def add(self, receipt: Receipt, hashes: Sequence[int]) -> None:
        """Further blocks of a receipt: some hundreds at once."""
        life = receipt.life
        if life.over or receipt.over:
            return
        room = self._blocks_max - self._in_receipts - len(hashes)
        if room < 0:
            self._reached(BLOCKS_LIMIT)
            if not self._make_room(-room, receipt):
                return
        taken, masks, mark = life.taken, self._masks, life.mark
        fresh = [each for each in hashes if each not in taken]
        taken.update(dict.fromkeys(hashes, receipt.number))
        for each in fresh:
            masks[each] = masks.get(each, 0) | mark
        receipt.hashes.extend(hashes)
        self._in_receipts += len(hashes)
        self.blocks += len(fresh)
        self.slots |= 1 << life.slot

    def watch(self, receipt: Receipt, last: int) -> None:
        """Its event is waited for: that of the last block."""
        self._watched.append((receipt, last))

    def end(self, slot: int) -> None:
        """The generation in that slot ended: nothing is expected of it any more. O(1)."""
        life = self._lives.pop(slot, None)
        if life is not None:
            life.over = True
            self.slots &= ~(1 << slot)
            self.blocks -= len(life.taken)
            self._ending.append(_Ending(life, None, 0))

    def _begin(self, slot: int) -> Life:
        mark = ~self._marks_taken & (self._marks_taken + 1)
        self._marks_taken |= mark
        return Life(slot, mark)

    # -- reading -------------------------------------------------------------------------------------------------------

    def beyond(self, hashes: NDArray[np.uint64], slots: int, held: Mapping[int, Held]) -> dict[int, int]:
        """How many blocks of a prompt, behind those that it holds, each slot of the bit set is about to hold.

        In one unbroken run of what is expected or held. Slots without any are absent.
        """
        begins: dict[int, list[Life]] = {}
        for slot, life in self._lives.items():
            if slots >> slot & 1:
                begins.setdefault(held[slot].matched if slot in held else 0, []).append(life)
        out: dict[int, int] = {}
        for begin, lives in begins.items():
            self._run(hashes[begin : begin + WALKED_MAX].tolist(), {life.mark: life.slot for life in lives}, out)
        return out

    def _run(self, hashes: Sequence[int], lives: dict[int, int], out: dict[int, int]) -> None:
        """From where all these slots hold nothing more."""
        masks, left, position = self._masks, sum(lives), -1
        for position, token_hash in enumerate(hashes):
            lost = left & ~masks.get(token_hash, 0)
            if lost:
                left ^= self._drop_out(lost, token_hash, position, lives, out)
                if not left:
                    return
        out.update((slot, position + 1) for mark, slot in lives.items() if left & mark and position >= 0)

    def _drop_out(self, marks: int, token_hash: int, position: int, lives: dict[int, int], out: dict[int, int]) -> int:
        """Of these, the marks of those that do not hold the block either: their run ends before it."""
        held_by, lost = self._mirror.holders(token_hash), 0
        while marks:
            mark = marks & -marks
            marks ^= mark
            if not held_by >> lives[mark] & 1:
                lost |= mark
                if position:
                    out[lives[mark]] = position
        return lost

    def expected_of_any(self, slots: int) -> Callable[[int], bool]:
        """Whether a block is expected of a slot of this bit set."""
        marks = sum(life.mark for slot, life in self._lives.items() if slots >> slot & 1)
        masks = self._masks
        return lambda token_hash: masks.get(token_hash, 0) & marks != 0

    # -- housekeeping, in slices ---------------------------------------------------------------------------------------

    def tidy_slice(self, now: float) -> bool:
        """One slice, under a millisecond; True while there is more to do."""
        while self._due and self._due[0][0] <= now and len(self._ending) < CLEARED_IN_A_SLICE:
            self._end_next()
        self._look_at_some(now)
        if self._ending:
            self._clear_some(CLEARED_IN_A_SLICE)
        return bool(self._ending)

    def _end_next(self) -> None:
        """The receipt whose deadline is next."""
        if self._due:
            self._end(heappop(self._due)[2])

    def _end(self, receipt: Receipt) -> None:
        if not receipt.over:
            receipt.over = True
            self._receipts -= 1
            self._ending.append(_Ending(receipt.life, receipt, 0))

    def _look_at_some(self, now: float) -> None:
        """Whether their event came."""
        for _ in range(min(LOOKED_AT_IN_A_SLICE, len(self._watched))):
            receipt, last = self._watched.popleft()
            if receipt.life.over:
                continue
            if self._mirror.holds(receipt.life.slot, last):
                self._end(receipt)
                if receipt.about is not None:
                    self.confirmed(Confirmed(receipt.about, now - receipt.routed_at))
            elif now - receipt.routed_at < WATCHED_S:
                self._watched.append((receipt, last))
            elif receipt.about is not None:
                self.expired()

    def _make_room(self, blocks: int, receipt: Receipt) -> bool:
        """Clear away so many at once: those whose deadline is next. False where this receipt's was."""
        enough = self._in_receipts - blocks
        while self._in_receipts > enough and (self._ending or self._due):
            if not self._ending:
                self._end_next()
            self._clear_some(CLEARED_IN_A_SLICE)
        return not receipt.over

    def _clear_some(self, room: int) -> None:
        while self._ending and room > 0:
            life, receipt, at = self._ending.popleft()
            if receipt is None:
                room = self._clear_life(life, room)
            elif at + room < len(receipt.hashes):
                self._clear_blocks(life, receipt, at, at + room)
                self._ending.appendleft(_Ending(life, receipt, at + room))
                return
            else:
                self._clear_blocks(life, receipt, at, len(receipt.hashes))
                room -= len(receipt.hashes) - at + 1
                receipt.hashes = array("Q")

    def _clear_blocks(self, life: Life, receipt: Receipt, first: int, end: int) -> None:
        self._in_receipts -= end - first
        if life.over:
            return  # cleared away as a whole
        taken, number = life.taken, receipt.number
        for token_hash in receipt.hashes[first:end]:
            if taken.get(token_hash) == number:  # else a later receipt has it, too
                del taken[token_hash]
                self.blocks -= 1
                self._unmark(token_hash, life.mark)
        if not taken:
            self.slots &= ~(1 << life.slot)

    def _clear_life(self, life: Life, room: int) -> int:
        """Of what is over; what room is left."""
        taken = life.taken
        while taken and room > 0:
            self._unmark(taken.popitem()[0], life.mark)
            room -= 1
        if taken:
            self._ending.appendleft(_Ending(life, None, 0))
        else:
            self._marks_taken &= ~life.mark  # no block has it any more: another life may
        return room

    def _unmark(self, token_hash: int, mark: int) -> None:
        left = self._masks[token_hash] & ~mark
        if left:
            self._masks[token_hash] = left
        else:
            del self._masks[token_hash]


def _ignore(_: Confirmed) -> None:
    """Nobody asks."""


def _ignore_it() -> None:
    """Nobody asks."""
