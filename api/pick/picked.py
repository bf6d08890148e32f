"""From an answer to what a script can read without a JSON library: a line a pod, and the same in headers. Pure.

Only pods that hold something are named, or, where nobody does, those that are about to: the prompt was routed there.
Where there are none either, the prefix decides nothing and the load should, which the gateway knows and we do not yet
(decisions/0025).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from schemas.lookup import LookupAnswer, PodEntry

PICKS_MAX: Final = 3
LOOKED_AT_MAX: Final = 256
"""Entries, best first, among which pods are looked for: each rank of a pod has one."""
STATE_HEADER: Final = "x-kvindexer-state"
NO_SIGNAL: Final = "no_signal"

_WORD: Final = "!#$&'()*+-./:;<=>?@[]^_`{|}~"
"""Stands as it is; what would end a word, a list or a header is percent-encoded."""
_ENDPOINT: Final = re.compile(
    r"(?:https?://)?((?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5})/?"
)

_decode: Final = msgspec.json.Decoder(PodEntry).decode


class Pick(NamedTuple):
    """One pod. `endpoint`: where it is reached, as far as that is known."""

    entry: PodEntry
    endpoint: str | None


def picks(answer: LookupAnswer, address_of: Callable[[str], str | None]) -> list[Pick]:
    """The pods that hold most, else those that are about to, best first.

    `address_of`: where a pod was said to be, for one with another name.
    """
    found: dict[str, Pick] = {}
    some_held = False
    for each in answer.pods[:LOOKED_AT_MAX]:
        entry = each if isinstance(each, PodEntry) else _decode(each)
        some_held = some_held or entry.score > 0
        named = entry.score if some_held else entry.speculative_tokens
        if not named or len(found) == PICKS_MAX:
            break
        if entry.pod not in found:
            found[entry.pod] = Pick(entry, endpoint_in(entry.pod) or endpoint_in(address_of(entry.pod) or ""))
    return list(found.values())


def lines(chosen: list[Pick]) -> bytes:
    """`POD SCORE MATCHED_TOKENS STATE`, a line a pod; `0` is the score of those that are about to hold something."""
    return "".join(
        f"{quote(entry.pod, safe=_WORD)} {_number(entry.score)} {entry.matched_tokens} {entry.state}\n"
        for entry, _ in chosen
    ).encode()


def headers(chosen: list[Pick], state: str, request_id: str) -> dict[str, str]:
    """The same for gateways that take headers over. A pod without an address has no place in the list of them."""
    told = {
        STATE_HEADER: state,
        "x-kvindexer-matched-tokens": str(chosen[0].entry.matched_tokens if chosen else 0),
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
