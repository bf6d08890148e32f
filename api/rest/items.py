"""Multimodal items of a question, and the one rule of theirs that spans several. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.errors import BadRequestError, FieldIssue
from schemas.lookup import MmItem
from schemas.rest import MmItemBody


def items_of(bodies: Sequence[MmItemBody] | None) -> tuple[MmItem, ...]:
    """The items as the core takes them, in the caller's order.

    Raises `BadRequestError` where two overlap: no prompt has such. The core refuses them, too, but only once it hashes,
    and a caller's mistake must not depend on which engines are known.
    """
    if not bodies:
        return ()
    end = 0
    for item in sorted(bodies, key=lambda item: item.offset):
        if item.offset < end:
            issue = FieldIssue("mm_items", "items that lie side by side", str(item.offset))
            raise BadRequestError("mm_items.overlap", [issue])
        end = item.offset + item.length
    return tuple(MmItem(item.hash, item.offset, item.length) for item in bodies)
