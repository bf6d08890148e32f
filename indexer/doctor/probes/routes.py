"""[I/O] Whether anything takes connections at an endpoint."""

from __future__ import annotations

import socket
from typing import Final

from indexer.doctor.places import host_and_port

CONNECT_S: Final = 3.0


def no_route(endpoint: str) -> str | None:
    """Why no connection stands; None where one does. The connection is closed at once."""
    place = host_and_port(endpoint)
    try:
        if place is None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as path:
                path.settimeout(CONNECT_S)
                path.connect(endpoint.partition("://")[2])
        else:
            socket.create_connection(place, CONNECT_S).close()
    except socket.gaierror:
        return "its name is not known here"
    except TimeoutError:
        return f"no answer in {CONNECT_S:g} s"
    except (OSError, UnicodeError) as error:
        return (getattr(error, "strerror", None) or "no such address").lower()
    return None
