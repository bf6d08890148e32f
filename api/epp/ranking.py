"""From an answer to the endpoints that a gateway is told, best first. Pure.

An endpoint is where a pod is reached, `IP:PORT`: its name where that says so, else the address it was registered with.
A pod that is cordoned, or said by whoever runs it not to be ready, is none; one of which nothing is heard any more is
the last resort, since what is not heard are its events: it may serve all the same, and the gateway looks itself.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from api.pick.picked import endpoint_in
from schemas.lookup import PodEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from schemas.lookup import LookupAnswer

LOOKED_AT_MAX: Final = 512
"""Entries, best first: each rank of a pod has one."""
_NONE: Final = frozenset({"cordoned", "not_ready", "pod_unknown", "other_model", "model_unknown", "filtered"})
"""Reasons of entries that are no endpoints."""

_decode: Final = msgspec.json.Decoder(PodEntry).decode


class Place(NamedTuple):
    """One rank of a pod, and where that is reached."""

    endpoint: str
    pod: str
    dp_rank: int
    score: float
    speculative_tokens: int


def places(
    answer: LookupAnswer, address_of: Callable[[str], str | None], most: int, *, shuffled: bool = False
) -> list[Place]:
    """So many endpoints at most. `shuffled`: nothing is known that would make one better than another."""
    entries = answer.pods
    if shuffled and entries:
        first = random.randrange(len(entries))  # noqa: S311 - spreads requests
        entries = entries[first:] + entries[:first]
    found: dict[str, Place] = {}
    last_resort: dict[str, Place] = {}
    for entry in _decoded(entries[:LOOKED_AT_MAX]):
        if entry.reason in _NONE:
            continue
        endpoint = endpoint_in(entry.pod) or endpoint_in(address_of(entry.pod) or "")
        if endpoint is None:
            continue
        place = Place(endpoint, entry.pod, entry.dp_rank, entry.score, entry.speculative_tokens)
        (last_resort if entry.state == "down" else found).setdefault(endpoint, place)
        if len(found) == most:
            break
    for endpoint, place in last_resort.items():
        found.setdefault(endpoint, place)
    return list(found.values())[:most]


def _decoded(entries: list[PodEntry | msgspec.Raw]) -> Iterator[PodEntry]:
    for each in entries:
        yield each if isinstance(each, PodEntry) else _decode(each)
