"""Sources in the words of Dynamo's `GET /workers`. Pure.

One entry an instance, with its ranks. An instance whose name is no number is told by its name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from schemas.rest import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.rest import SourceView

BLOCK_SIZE_LABEL: Final = "block_size"
"""Holds what a registration said."""
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_STATUS: Final = {
    "new": "pending",
    "syncing": "pending",
    "live": "active",
    "suspect": "active",
    "stale": "active",
    "down": "failed",
}
_WORST_FIRST: Final = ("failed", "pending", "active", "paused")


class WorkersFilters(msgspec.Struct, kw_only=True):
    """Query of `GET /workers`."""

    model_name: Text | None = None
    routing_group: Text | None = None
    tenant_id: Text | None = None


def listed(views: Sequence[SourceView]) -> list[dict[str, Any]]:
    """The answer. `views` in the order of pod and rank."""
    workers: dict[str, dict[str, Any]] = {}
    for view in views:
        listener: dict[str, Any] = {"endpoint": view.endpoint or "", "status": _status(view)}
        error = _error(view)
        if error is not None:
            listener["last_error"] = error
        worker = workers.setdefault(
            view.pod,
            {
                "instance_id": int(view.pod) if _NUMBER.fullmatch(view.pod) else view.pod,
                "source": "zmq",
                "status": "paused",
                "model_name": view.model or "",
                "routing_group": view.tenant,
                "block_size": view.block_size or _told_size(view),
                "endpoints": {},
                "listeners": {},
            },
        )
        rank = str(view.dp_rank)
        worker["endpoints"][rank] = listener["endpoint"]
        worker["listeners"][rank] = listener
    for worker in workers.values():
        statuses = {listener["status"] for listener in worker["listeners"].values()}
        worker["status"] = next(status for status in _WORST_FIRST if status in statuses)
    return list(workers.values())


def _status(view: SourceView) -> str:
    return "paused" if view.cordoned or not view.ready else _STATUS[view.state]


def _told_size(view: SourceView) -> int:
    told = view.labels.get(BLOCK_SIZE_LABEL, "")
    return int(told) if _NUMBER.fullmatch(told) else 0


def _error(view: SourceView) -> str | None:
    told = view.labels.get(BLOCK_SIZE_LABEL)
    if told is not None and view.block_size is not None and told != str(view.block_size):
        return f"registered with a block size of {told}, announces blocks of {view.block_size}"
    return view.why if view.state == "down" else None
