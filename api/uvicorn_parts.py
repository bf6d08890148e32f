"""What is used of uvicorn, without its command line and its own log: 2 MB, of click and multiprocessing mostly. No I/O.

uvicorn's package loads its command line first of all, and what sets up a log. `uvicorn.run` and `uvicorn.main` are not
there in this process, unless they were before.
"""

from __future__ import annotations

import sys
from typing import Final

from indexer.stand_ins import without

_WAS_LOADED: Final = "uvicorn" in sys.modules
_UNUSED: Final = {"uvicorn.main": {"Server": None, "main": None, "run": None}, "logging.config": {}}

with without({} if _WAS_LOADED else _UNUSED):
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import Server, ServerState

if not _WAS_LOADED:
    _package = sys.modules["uvicorn"].__dict__
    _package["Server"] = Server
    del _package["run"], _package["main"]

__all__ = ["STATUS_LINE", "Config", "HttpToolsProtocol", "RequestResponseCycle", "Server", "ServerState"]
