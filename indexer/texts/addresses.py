"""Where a source's API is, as far as it may be asked there. Pure.

A text is a user's: it goes only where an operator, or the list in `auth.endpoints`, says so. An address is judged when
it is registered. A name is not: one that somebody else chose counts only for the host that its events come from, and
that of a topic never does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from indexer.model import Descriptor

_ADDRESS: Final = re.compile(r"(?:http://)?((?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})/?")
_TCP: Final = "tcp://"


def base_url(address: str) -> str | None:
    """The URL for an address; None for what is no `HOST:PORT`."""
    found = _ADDRESS.fullmatch(address)
    return None if found is None else f"http://{found[1]}"


def engine_url(descriptor: Descriptor) -> str | None:
    """Where a source's API is: its address, else its name where that is `HOST:PORT`; None where nothing says."""
    if descriptor.address is not None:
        return base_url(descriptor.address)
    url = base_url(descriptor.pod)
    if url is None or descriptor.origin in {"flag", "config"}:
        return url
    endpoint = descriptor.endpoint or ""
    same = endpoint.startswith(_TCP) and _host(endpoint.removeprefix(_TCP)) == _host(url.removeprefix("http://"))
    return url if same else None


def _host(address: str) -> str:
    return address.rpartition(":")[0].lower()
