"""The hit rule of hybrid models: full-attention groups hold everything, sliding windows only what they still look at.

Pure.

A hit is the longest multiple L of the least common multiple of the block sizes such that the full-attention groups
hold every block of [0, L) and each window group holds its last ceil((window - 1) / block) blocks before L, or all if
fewer (as recorded engines do). Blocks of another size carry the hash at their end, so block j of a group whose blocks
are r times as large is found at position (j + 1) * r - 1 of the walk.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from indexer.model import GroupInfo, Run


def hybrid_tokens(
    limit_tokens: int,
    block_size: int,
    groups: Iterable[tuple[int, GroupInfo]],
    runs: Sequence[Run],
    slot: int,
    groups_held: Callable[[int], Collection[int]],
) -> int:
    """Tokens the engine would skip: at most `limit_tokens`, which the full-attention groups hold.

    `groups`: the window groups; `groups_held`: lane bits to groups.
    """
    rules = [(group, info.block_size, info.window or 0) for group, info in groups]
    step = lcm(block_size, *(size for _, size, _ in rules))
    best = limit_tokens // step * step
    held = {group: _held_positions(runs, slot, groups_held, group, limit_tokens // block_size) for group, _, _ in rules}
    while best:
        longest = min(
            (_fits(held[group], best, size, window, block_size) for group, size, window in rules), default=best
        )
        if longest == best:
            return best
        best = longest // step * step
    return 0


def _fits(held: bytearray, tokens: int, size: int, window: int, block_size: int) -> int:
    """`tokens` where the group holds its last blocks before them, else the next length that may fit.

    Every length behind a block that is missing looks back on it, down to the one that ends before it; and that one
    needs its own last block. So each block is looked at once at most, however often the answer is no.
    """
    ratio = size // block_size
    if ratio < 1 or size % block_size:
        return 0  # finer than the walk: its hashes have no position there
    last = tokens // size
    first = max(0, last - -(-(window - 1) // size))
    for block in range(last - 1, first - 1, -1):
        if not held[(block + 1) * ratio - 1]:
            return (held.rfind(b"\1", 0, block * ratio) + 1) // ratio * size
    return tokens


def _held_positions(
    runs: Sequence[Run], slot: int, groups_held: Callable[[int], Collection[int]], group: int, blocks: int
) -> bytearray:
    """For each walked block, whether the group holds it in any tier."""
    held = bytearray(blocks)
    for record, start, end in runs:
        if start >= blocks:
            break
        if group in groups_held(record.lanes_of(slot)):
            stop = min(end, blocks)
            held[start:stop] = b"\1" * (stop - start)
    return held
