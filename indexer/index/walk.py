"""The walk: from the first block on, and the holders of each block until none is left. Pure.

    runs     stretches of consecutive blocks with one record: presence changes rarely along a prompt, so a walk of
             512 blocks handles a few runs
    start    mask of slots that may count at all: live generations ∩ model ∩ tenant ∩ filters
    result   per slot: blocks in the longest unbroken prefix, in any tier and in each cumulative tier view

P2: a slot counts for block i only if it holds 0..i. A block that goes and comes back restores what lies behind it,
since every block has its own entry. Exact for any number of slots and holes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.index.records import VIEWS
from indexer.model import Held, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from indexer.index.mirror import Mirror

VECTOR_BLOCKS_MIN: Final = 96
"""From here on one numpy gather beats a Python probe a block (about 11 us against 0.14 us a block, warm)."""


class Walk(NamedTuple):
    """Result of one walk. Slots that do not hold block 0 are absent from `held`."""

    held: dict[int, Held]
    runs: list[Run]


def walk(mirror: Mirror, hashes: NDArray[np.uint64], start: int) -> Walk:
    """Longest unbroken prefixes of every slot in the bit set `start`."""
    if not start or not len(hashes):
        return Walk({}, [])
    if len(hashes) >= VECTOR_BLOCKS_MIN:
        runs = _runs_vector(mirror, hashes, start)
    else:
        runs = _runs_scalar(mirror, hashes.tolist(), start)
    return Walk(_held(runs, start), runs)


def _held(runs: list[Run], start: int) -> dict[int, Held]:
    """And the masks along the runs; a slot's count is where its bit goes out."""
    if not runs:
        return {}
    if len(runs) == 1 and runs[0].record.plain:  # the usual prompt: the same engines hold all of what is held
        held = Held(runs[0].end, (runs[0].end,) * VIEWS)
        return dict.fromkeys(_slots(start & runs[0].record.any), held)
    matched = _prefixes([record.any for record, _, _ in runs], runs, start)
    if all(record.plain for record, _, _ in runs):
        return {slot: Held(count, (count,) * VIEWS) for slot, count in matched.items()}
    gpu, cpu, storage, remote = (
        _prefixes([record.views[view] for record, _, _ in runs], runs, start) for view in range(VIEWS)
    )
    return {
        slot: Held(count, (gpu.get(slot, 0), cpu.get(slot, 0), storage.get(slot, 0), remote.get(slot, 0)))
        for slot, count in matched.items()
    }


def _prefixes(masks: list[int], runs: list[Run], start: int) -> dict[int, int]:
    """Slot to the number of blocks it holds from the first on, by these masks; absent where it lacks the first."""
    counts: dict[int, int] = {}
    left = start & masks[0]
    for mask, (_, begin, _) in zip(masks, runs, strict=True):
        lost = left & ~mask
        if lost:
            _close(counts, lost, begin)
            left ^= lost
    _close(counts, left, runs[-1].end)
    return counts


def _slots(bits: int) -> list[int]:
    slots: list[int] = []
    while bits:
        lowest = bits & -bits
        slots.append(lowest.bit_length() - 1)
        bits ^= lowest
    return slots


def _close(counts: dict[int, int], bits: int, at: int) -> None:
    if bits:
        counts.update(dict.fromkeys(_slots(bits), at))


def _runs_scalar(mirror: Mirror, hashes: Sequence[int], left: int) -> list[Run]:
    """One probe a block, until a block that no slot of `left` holds any more."""
    table = mirror.table
    if table.old is not None:
        return _runs_of_rids(mirror, [table.get(token_hash) for token_hash in hashes], left)
    slots = table.current
    cells, mask, shift = slots.cells, slots.mask, slots.shift
    records = mirror.book.records
    runs: list[Run] = []
    current, begin, position = -1, 0, 0
    for position, token_hash in enumerate(hashes):
        cell = token_hash >> shift & mask
        found = cells[cell]
        while found != token_hash and found:
            cell += 2
            found = cells[cell]
        rid = cells[cell + 1]  # an empty slot has record id 0
        if rid != current:
            if current > 0:
                runs.append(Run(records[current], begin, position))
            left &= records[rid].any
            if not left:
                return runs
            current, begin = rid, position
    runs.append(Run(records[current], begin, position + 1))
    return runs


def _runs_vector(mirror: Mirror, hashes: NDArray[np.uint64], left: int) -> list[Run]:
    """All probes in a few array operations; where presence changes decides the rest."""
    rids = mirror.table.prefix(hashes)
    count = len(rids)
    if not count:
        return []
    records = mirror.book.records
    image = rids.tobytes()
    if image == image[: rids.itemsize] * count:  # the usual prompt
        record = records[rids.item(0)]
        return [Run(record, 0, count)] if record.any & left else []
    begins = [0, *((rids[1:] != rids[:-1]).nonzero()[0] + 1).tolist()]
    runs: list[Run] = []
    for number, begin in enumerate(begins, 1):
        record = records[rids.item(begin)]
        left &= record.any
        if not left:
            break
        runs.append(Run(record, begin, begins[number] if number < len(begins) else count))
    return runs


def _runs_of_rids(mirror: Mirror, rids: list[int], left: int) -> list[Run]:
    records = mirror.book.records
    runs: list[Run] = []
    begin = 0
    for position in range(1, len(rids) + 1):
        if position < len(rids) and rids[position] == rids[begin]:
            continue
        record = records[rids[begin]]
        left &= record.any
        if not left:
            break
        runs.append(Run(record, begin, position))
        begin = position
    return runs
