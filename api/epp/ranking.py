"""From what the node says to the endpoints that a gateway is told, best first. Pure.

An endpoint is where a pod is reached, `IP:PORT`: its name where that says so, else the address it was registered with.
A pod that is cordoned, or said by whoever runs it not to be ready, is none; one of which nothing is heard any more is
the last resort, since what is not heard are its events: it may serve all the same, and the gateway looks itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from api.pick.picked import endpoint_in
from schemas.lookup import PodEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.lookup import LookupAnswer
    from schemas.recommend import RecommendAnswer, RecommendedPod

    AddressOf = Callable[[str], str | None]
    """Where a pod of that name was said to be reached."""

LOOKED_AT_MAX: Final = 512
"""Entries among which a last resort is looked for: each rank of a pod has one."""
_NONE: Final = frozenset({"cordoned", "not_ready", "pod_unknown", "other_model", "model_unknown", "filtered"})
"""Reasons of entries that are no endpoints."""

_decode: Final = msgspec.json.Decoder(PodEntry).decode


class Place(NamedTuple):
    """One rank of a pod, and where that is reached."""

    endpoint: str
    pod: str
    dp_rank: int


class Ranked(NamedTuple):
    """Where a request goes, best first. `prefill`: who takes its prompt, where another than these does."""

    places: tuple[Place, ...] = ()
    prefill: Place | None = None
    by_prefix: bool = False
    """Whether the first holds something of it, or is about to."""


def ranked(answer: RecommendAnswer, address_of: AddressOf, most: int) -> Ranked:
    """As recommended: so many endpoints at most."""
    takes = _places(answer.picks, address_of, most)
    by_prefix = bool(answer.picks) and answer.picks[0].terms.prefix + answer.picks[0].terms.speculative > 0
    if answer.decode is None:
        return Ranked(tuple(takes), None, by_prefix)
    makes = _places(answer.decode, address_of, most)
    if not takes or not makes:  # one of the two is nowhere: whoever is there does both
        return Ranked(tuple(makes or takes), None, by_prefix and not makes)
    return Ranked(tuple(makes), takes[0], by_prefix)


def last_resort(answer: LookupAnswer, address_of: AddressOf, most: int) -> Ranked:
    """Whoever is there and was not recommended, those behind of whom nothing is heard."""
    found: dict[str, Place] = {}
    for entry in sorted(_usable(answer), key=lambda entry: entry.state == "down"):
        if (endpoint := _endpoint(entry.pod, address_of)) is not None:
            found.setdefault(endpoint, Place(endpoint, entry.pod, entry.dp_rank))
    return Ranked(tuple(found.values())[:most])


def has_no_place(answer: LookupAnswer, address_of: AddressOf) -> bool:
    """Whether somebody is there who is reached where nobody here knows."""
    return any(_endpoint(entry.pod, address_of) is None for entry in _usable(answer))


def _usable(answer: LookupAnswer) -> list[PodEntry]:
    entries = [each if isinstance(each, PodEntry) else _decode(each) for each in answer.pods[:LOOKED_AT_MAX]]
    return [entry for entry in entries if entry.reason not in _NONE]


def _places(picks: Sequence[RecommendedPod], address_of: AddressOf, most: int) -> list[Place]:
    found: dict[str, Place] = {}
    for pick in picks:
        if len(found) == most:
            break
        if (endpoint := _endpoint(pick.pod, address_of)) is not None:
            found.setdefault(endpoint, Place(endpoint, pick.pod, pick.dp_rank))
    return list(found.values())


def _endpoint(pod: str, address_of: AddressOf) -> str | None:
    return endpoint_in(pod) or endpoint_in(address_of(pod) or "")
