"""What sources are about to hold: blocks of prompts routed to them, until their events tell. Pure; time is given.

    receipt    a prompt was routed: the blocks that the source is not known to hold are expected of it until a deadline
    event      it is looked for WATCHED_S whether the last of them is held: then the receipt's blocks end, and how long
               that took is told. Longer than a deadline, or a source slower than its deadlines would never be seen
    life       a source's generation in its slot. With it all that is expected of it ends at once (P4): what is left
               of it is found by a mark that no other life has, and is cleared away in slices
    bucket     blocks whose deadlines are to be looked at together. A block stands in one: whoever names it again moves
               its deadline, and when its bucket's turn comes it goes to a later one

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
"""The longest deadline that events decide about: a later one says more about the engine's queue than the prompt."""
RECEIPTS_MAX: Final = 65_536
"""Watched at once, with as many blocks in all as may be expected."""
BUCKETS_A_SECOND: Final = 10
"""A block is expected at most a tenth of a second too long."""
PARTS: Final = 64
"""Of each dict of blocks, by a hash's lowest bits: one of a million entries stops the world while it grows."""
CLEARED_IN_A_SLICE: Final = 1_024
LOOKED_AT_IN_A_SLICE: Final = 256
"""Each a fifth of a millisecond."""
LOOKED_AT_FOR_ROOM: Final = 4
"""Blocks looked at for each that needs room."""
WALKED_MAX: Final = 16_384
"""Blocks beyond what is held that one lookup goes through: 2 ms."""
BLOCKS_LIMIT: Final = "limits.speculative_blocks"
RECEIPTS_LIMIT: Final = "receipts.watched"
"""Names of limits, for the counter."""


class Life:
    """What is expected of one generation of a source. `taken`: block to its deadline, in parts; `blocks` of them."""

    __slots__ = ("blocks", "mark", "over", "slot", "taken")

    def __init__(self, slot: int, mark: int) -> None:
        self.slot = slot
        self.mark = mark
        self.taken: list[dict[int, float]] = [{} for _ in range(PARTS)]
        self.blocks = 0
        self.over = False


class Receipt:
    """One prompt, routed to one source. `about`: whose time it is that the event takes; None: nobody asks."""

    __slots__ = ("about", "hashes", "last", "life", "routed_at", "until")

    def __init__(self, life: Life, routed_at: float, until: float, about: SourceId | None) -> None:
        self.life = life
        self.routed_at = routed_at
        self.until = until
        self.about = about
        self.hashes = array("Q")
        self.last: int | None = None
        """The block whose event is waited for; None: none is."""


class Confirmed(NamedTuple):
    """A receipt came true."""

    source: SourceId
    seconds: float


class _Ending(NamedTuple):
    """What is left to be cleared away: these blocks of a life, from `at` on; without any, all of it."""

    life: Life
    hashes: Sequence[int] | None
    at: int


class Speculation:
    """All that is expected in one process. `reached` is told of limits."""

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
        self._slot_of: dict[int, int] = {}
        """By mark, of lives that are not over."""
        self._marks_taken = 0
        self._masks: list[dict[int, int]] = [{} for _ in range(PARTS)]
        """Block to the marks of the lives that it is expected of, in parts."""
        self._buckets: dict[int, deque[tuple[Life, Sequence[int]]]] = {}
        self._due: list[int] = []
        """The numbers of the buckets, as a heap."""
        self._watched: deque[Receipt] = deque()
        self._watched_blocks = 0
        self._ending: deque[_Ending] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of anything that was expected."""
        left = any(self._masks) or any(life.blocks for life in self._lives.values())
        return not (left or self.blocks or self._ending or self._watched)

    # -- receipts ------------------------------------------------------------------------------------------------------

    def expect(self, slot: int, now: float, ttl_s: float, about: SourceId | None = None) -> Receipt:
        """A receipt without blocks yet."""
        life = self._lives.get(slot)
        if life is None:
            mark = ~self._marks_taken & (self._marks_taken + 1)
            self._marks_taken |= mark
            life = self._lives[slot] = Life(slot, mark)
            self._slot_of[mark] = slot
        return Receipt(life, now, now + ttl_s, about)

    def add(self, receipt: Receipt, hashes: Sequence[int]) -> None:
        """Further blocks of a receipt: some hundreds at once. A caller may name one more than once."""
        life, until = receipt.life, receipt.until
        if life.over:
            return
        once = dict.fromkeys(hashes)
        fresh = [each for each in once if self._is_fresh(life, each, until)]
        if self.blocks + len(fresh) > self._blocks_max:
            self._reached(BLOCKS_LIMIT)
            self._make_room(len(fresh))
            fresh = fresh[: max(0, self._blocks_max - self.blocks)]
        taken, masks, mark = life.taken, self._masks, life.mark
        for each in fresh:
            part = each % PARTS
            taken[part][each] = until
            masks[part][each] = masks[part].get(each, 0) | mark
        self._put(life, fresh, _bucket_of(until))
        receipt.hashes.extend(once)
        self.blocks += len(fresh)
        life.blocks += len(fresh)
        if life.blocks:
            self.slots |= 1 << life.slot

    def _is_fresh(self, life: Life, token_hash: int, until: float) -> bool:
        """Whether the block is not expected yet; else its deadline moves."""
        part = life.taken[token_hash % PARTS]
        before = part.get(token_hash)
        if before is not None and before < until:
            part[token_hash] = until
        return before is None

    def watch(self, receipt: Receipt) -> None:
        """The event of its last block is waited for. One that is not watched ends by its deadline alone."""
        hashes = receipt.hashes
        if not hashes:
            return
        if len(self._watched) >= RECEIPTS_MAX or self._watched_blocks + len(hashes) > self._blocks_max:
            self._reached(RECEIPTS_LIMIT)
            return
        receipt.last = hashes[-1]
        self._watched.append(receipt)
        self._watched_blocks += len(hashes)

    def end(self, slot: int) -> None:
        """The generation in that slot ended: nothing is expected of it any more. O(1)."""
        life = self._lives.pop(slot, None)
        if life is not None:
            life.over = True
            del self._slot_of[life.mark]
            self.slots &= ~(1 << slot)
            self.blocks -= life.blocks
            self._ending.append(_Ending(life, None, 0))

    def _put(self, life: Life, hashes: Sequence[int], number: int) -> None:
        if hashes:
            bucket = self._buckets.get(number)
            if bucket is None:
                bucket = self._buckets[number] = deque()
                heappush(self._due, number)
            bucket.append((life, array("Q", hashes)))

    # -- reading -------------------------------------------------------------------------------------------------------

    def beyond(self, hashes: NDArray[np.uint64], slots: int, held: Mapping[int, Held]) -> dict[int, int]:
        """How many blocks of a prompt, behind those that it holds, each slot of the bit set is about to hold.

        In one unbroken run of what is expected or held. Slots without any are absent.
        """
        out: dict[int, int] = {}
        for begin in {0, *(each.matched for each in held.values())}:
            lives = self._expecting(hashes.item(begin), slots) if begin < len(hashes) else {}
            for mark, slot in list(lives.items()):
                if begin != (held[slot].matched if slot in held else 0):
                    del lives[mark]
            if lives:
                self._run(hashes[begin : begin + WALKED_MAX].tolist(), lives, out)
        return out

    def _expecting(self, token_hash: int, slots: int) -> dict[int, int]:
        """The slots of the bit set that a block is expected of, by their marks."""
        marks, found = self._masks[token_hash % PARTS].get(token_hash, 0), dict[int, int]()
        while marks:
            mark = marks & -marks
            marks ^= mark
            slot = self._slot_of.get(mark)  # none where that life is over
            if slot is not None and slots >> slot & 1:
                found[mark] = slot
        return found

    def _run(self, hashes: Sequence[int], lives: dict[int, int], out: dict[int, int]) -> None:
        """From where all these slots hold nothing more."""
        masks, left, position = self._masks, sum(lives), -1
        for position, token_hash in enumerate(hashes):
            lost = left & ~masks[token_hash % PARTS].get(token_hash, 0)
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
        """Whether a block is expected of a slot of this bit set. Whoever expects other blocks costs nothing."""
        masks, slot_of = self._masks, self._slot_of

        def is_expected(token_hash: int) -> bool:
            marks = masks[token_hash % PARTS].get(token_hash, 0)
            while marks:
                mark = marks & -marks
                slot = slot_of.get(mark)  # none where that life is over
                if slot is not None and slots >> slot & 1:
                    return True
                marks ^= mark
            return False

        return is_expected

    # -- housekeeping, in slices ---------------------------------------------------------------------------------------

    def tidy_slice(self, now: float) -> bool:
        """One slice, under a millisecond; True while there is more to do."""
        self._look_at_some(now)
        room = self._clear_some(CLEARED_IN_A_SLICE)
        if room > 0:
            self._end_due(int(now * BUCKETS_A_SECOND), now, room)
        return bool(self._ending) or bool(self._due and self._due[0] <= now * BUCKETS_A_SECOND)

    def _look_at_some(self, now: float) -> None:
        """Whether their event came."""
        for _ in range(min(LOOKED_AT_IN_A_SLICE, len(self._watched))):
            receipt = self._watched.popleft()
            life, last = receipt.life, receipt.last
            is_held = not life.over and last is not None and self._mirror.holds(life.slot, last)
            if not life.over and not is_held and now - receipt.routed_at < WATCHED_S:
                self._watched.append(receipt)
                continue
            self._watched_blocks -= len(receipt.hashes)
            if is_held:
                self._ending.append(_Ending(life, receipt.hashes, 0))
            if receipt.about is not None and is_held:
                self.confirmed(Confirmed(receipt.about, now - receipt.routed_at))
            elif receipt.about is not None and not life.over:
                self.expired()

    def _end_due(self, number: int, now: float, room: int) -> None:
        """Blocks of buckets up to that number: those whose deadline is over end, the others go to a later bucket."""
        while self._due and self._due[0] <= number and room > 0:
            bucket = self._buckets[self._due[0]]
            while bucket and room > 0:
                life, hashes = bucket.popleft()
                room -= len(hashes) + 1
                if not life.over:
                    self._end_of(life, hashes, now)
            if not bucket:
                del self._buckets[heappop(self._due)]

    def _end_of(self, life: Life, hashes: Sequence[int], now: float) -> None:
        later: dict[int, list[int]] = {}
        over: list[int] = []
        for each in hashes:
            until = life.taken[each % PARTS].get(each)
            if until is None:
                continue  # its event came
            if until <= now:
                over.append(each)
            else:
                later.setdefault(_bucket_of(until), []).append(each)
        self._take_out(life, over)
        for number, those in later.items():
            self._put(life, those, number)

    def _make_room(self, blocks: int) -> None:
        """For so many: those whose deadlines are next end early."""
        self._clear_some(LOOKED_AT_FOR_ROOM * blocks)
        left = LOOKED_AT_FOR_ROOM * blocks + CLEARED_IN_A_SLICE
        while self._due and left > 0 and self.blocks + blocks > self._blocks_max:
            number = self._due[0]
            bucket = self._buckets[number]
            life, hashes = bucket.popleft()
            if not bucket:
                del self._buckets[heappop(self._due)]
            left -= len(hashes) + 1
            if not life.over:
                self._end_of(life, hashes, number / BUCKETS_A_SECOND)

    def _clear_some(self, room: int) -> int:
        """What is known to be over; what room is left."""
        while self._ending and room > 0:
            life, hashes, at = self._ending.popleft()
            if hashes is None:
                room = self._clear_life(life, room)
                continue
            if not life.over:  # else it is cleared away as a whole
                self._take_out(life, hashes[at : at + room])
            if at + room < len(hashes):
                self._ending.appendleft(_Ending(life, hashes, at + room))
            room -= len(hashes) - at + 1
        return room

    def _take_out(self, life: Life, hashes: Sequence[int]) -> None:
        for token_hash in hashes:
            if life.taken[token_hash % PARTS].pop(token_hash, None) is not None:
                self.blocks -= 1
                life.blocks -= 1
                self._unmark(token_hash, life.mark)
        if not life.blocks:
            self.slots &= ~(1 << life.slot)

    def _clear_life(self, life: Life, room: int) -> int:
        """Of what is over; what room is left."""
        for part in life.taken:
            while part and room > 0:
                self._unmark(part.popitem()[0], life.mark)
                room -= 1
        if any(life.taken):
            self._ending.appendleft(_Ending(life, None, 0))
        else:
            self._marks_taken &= ~life.mark  # no block has it any more: another life may
        return room

    def _unmark(self, token_hash: int, mark: int) -> None:
        masks = self._masks[token_hash % PARTS]
        left = masks[token_hash] & ~mark
        if left:
            masks[token_hash] = left
        else:
            del masks[token_hash]


def _bucket_of(until: float) -> int:
    """The first whose turn comes after that."""
    return int(until * BUCKETS_A_SECOND) + 1


def _ignore(_: Confirmed) -> None:
    """Nobody asks."""


def _ignore_it() -> None:
    """Nobody asks."""
