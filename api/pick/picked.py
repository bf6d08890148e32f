"""From a recommendation to what a script can read without a JSON library: a line a pod, and the same in headers. Pure.

Where nothing is known of loads, only pods that hold something are named, or, where nobody does, those that are about
to: the prompt was routed there. Where there are none either nothing speaks for any pod, and the gateway should balance
by what it knows itself (decisions/0025).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

from schemas.recommend import DetailedPod, RecommendAnswer

PICKS_MAX: Final = 3
STATE_HEADER: Final = "x-kvindexer-state"
NO_SIGNAL: Final = "no_signal"

_WORD: Final = "!#$&'()*+-./:;<=>?@[]^_`{|}~"
"""Stands as it is; what would end a word, a list or a header is percent-encoded."""
_ENDPOINT: Final = re.compile(
    r"(?:https?://)?((?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5})/?"
)


class Pick(NamedTuple):
    """One pod. `endpoint`: where it is reached, as far as that is known."""

    pod: DetailedPod
    endpoint: str | None


def picks(answer: RecommendAnswer, address_of: Callable[[str], str | None]) -> list[Pick]:
    """The pods to send the request to, best first; none where nothing speaks for any.

    `address_of`: where a pod was said to be, for one with another name.
    """
    ranked = [each for each in answer.picks if isinstance(each, DetailedPod)]
    if not any(each.terms.load for each in ranked):
        ranked = [each for each in ranked if each.total > 0]
        ranked = [each for each in ranked if each.terms.prefix] or ranked
    return [Pick(each, endpoint_in(each.pod) or endpoint_in(address_of(each.pod) or "")) for each in ranked[:PICKS_MAX]]


def lines(chosen: list[Pick]) -> bytes:
    """`POD SCORE MATCHED_TOKENS STATE`, a line a pod; `0` is the score of those that hold nothing yet."""
    return "".join(
        f"{quote(pod.pod, safe=_WORD)} {_number(pod.score)} {pod.matched_tokens} {pod.state}\n" for pod, _ in chosen
    ).encode()


def headers(chosen: list[Pick], state: str, request_id: str) -> dict[str, str]:
    """The same for gateways that take headers over. A pod without an address has no place in the list of them."""
    told = {
        STATE_HEADER: state,
        "x-kvindexer-matched-tokens": str(chosen[0].pod.matched_tokens if chosen else 0),
        "x-kvindexer-request-id": request_id,
    }
    endpoints = [pick.endpoint for pick in chosen if pick.endpoint is not None]
    if endpoints:
        told["x-gateway-destination-endpoint"] = ",".join(endpoints)
    return told


def _number(score: float) -> str:
    return f"{score:.6f}" if score else "0"


def endpoint_in(name: str) -> str | None:
    """`HOST:PORT` where that is what the name says."""
    found = _ENDPOINT.fullmatch(name)
    return None if found is None else found[1]
