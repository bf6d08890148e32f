"""Engines as a gateway sees them: HTTP servers that say who they are and how long a body they got."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        got = self.rfile.read(length)
        content = json.dumps({"engine": self.server.server_address[1], "bytes": len(got)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name that the library gives
        pass


class Backends:
    """`count` of them on free ports; a context manager."""

    def __init__(self, count: int) -> None:
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Handler) for _ in range(count)]
        self.ports = [server.server_address[1] for server in self._servers]

    def __enter__(self) -> Self:
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
