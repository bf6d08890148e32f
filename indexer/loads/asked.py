"""Where an engine's metrics are read: at places that were registered, and nowhere else. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from indexer.model import Descriptor

_PLACE: Final = re.compile(
    r"(?:http://)?(?P<place>(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}):[0-9]{1,5})/?"
)


class Place(NamedTuple):
    """`IP:PORT`. `is_given`: by who registered the source, and not read out of its name."""

    address: str
    is_given: bool


def place_of(described: Descriptor) -> Place | None:
    """Its address; else its name, where that is one at the host that its events come from. None: it has none.

    A publisher that named itself on a bound socket is no reason to call anybody: it has no endpoint, and no address.
    """
    if described.address is not None:
        return Place(described.address, is_given=True)
    named = _PLACE.fullmatch(described.pod)
    if named is None or described.endpoint is None:
        return None
    host = described.endpoint.removeprefix("tcp://").rpartition(":")[0]
    return Place(named["place"], is_given=False) if host.lower() == named["host"].lower() else None
