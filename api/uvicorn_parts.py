"""What is used of uvicorn, without its command line and its own log: 2 MB, of click and multiprocessing mostly. No I/O.

uvicorn's package loads its command line first of all, and what sets up a log. Names that stand for these meanwhile are
all that is wanted here; `uvicorn.run` and `uvicorn.main` are not there in this process, unless they were before.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNUSED: Final[dict[str, dict[str, None]]] = {
    "uvicorn.main": {"Server": None, "main": None, "run": None},
    "logging.config": {},
}


@contextlib.contextmanager
def _without_command_line() -> Iterator[None]:
    if "uvicorn" in sys.modules:
        yield
        return
    stood_in = [name for name in _UNUSED if name not in sys.modules]
    for name in stood_in:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(_UNUSED[name])
    try:
        yield
    finally:
        for name in stood_in:
            del sys.modules[name]
    package = sys.modules["uvicorn"].__dict__
    package["Server"] = sys.modules["uvicorn.server"].__dict__["Server"]
    del package["run"], package["main"]


with _without_command_line():
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import Server, ServerState

__all__ = ["STATUS_LINE", "Config", "HttpToolsProtocol", "RequestResponseCycle", "Server", "ServerState"]
