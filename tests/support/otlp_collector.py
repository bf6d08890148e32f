"""A collector of traces on a real socket, in a thread of its own: keeps what it is sent, answers as it is told to."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from schemas.rpc.otlp.v1.otlp_pb2 import ExportTraceRequest, Span

if TYPE_CHECKING:
    from collections.abc import Iterator


DRIPS: Final = -1
"""Instead of a status: a byte now and then, for as long as anybody reads."""


class OtlpCollector:
    """`answers`: statuses of the next requests, 200 once they are used up; `DRIPS` for one that never comes to its end.

    `body`: what it says with a 200. `says`: headers of each answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[int] = []
        self.body = b""
        self.says: dict[str, str] = {}
        self.asked = 0
        """Requests that came, answered or not."""
        self.cookies: list[str] = []
        """That were sent along."""
        self.paths: list[str] = []
        self.raw: list[bytes] = []
        self.requests: list[ExportTraceRequest] = []
        """Those that were answered well."""
        self.free = threading.Event()
        """No request is answered before."""
        self.free.set()

    @property
    def spans(self) -> list[Span]:
        """All that were taken."""
        return [
            span
            for request in self.requests
            for each in request.resource_spans
            for s in each.scope_spans
            for span in s.spans
        ]

    def take(self, path: str, content: bytes) -> int:
        self.asked += 1
        self.free.wait(20.0)
        self.paths.append(path)
        self.raw.append(content)
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.requests.append(ExportTraceRequest.FromString(content))
        return status


@contextlib.contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """One that runs until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            collector.cookies += self.headers.get_all("cookie", [])
            status = collector.take(self.path, content)
            body = collector.body if status == 200 else b""
            with contextlib.suppress(ConnectionError):
                if status == DRIPS:
                    self._drip()
                self.send_response(status)
                for name, value in collector.says.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def _drip(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "1000000")
            self.end_headers()
            while not over.wait(0.005):
                self.wfile.write(b"#")
            raise ConnectionAbortedError

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = OtlpCollector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="otlp collector")
    thread.start()
    try:
        yield collector
    finally:
        over.set()
        collector.free.set()
        server.shutdown()
        thread.join()
        server.server_close()


def told(span: Span) -> dict[str, str | int]:
    """Its attributes."""
    out: dict[str, str | int] = {}
    for each in span.attributes:
        value = each.value
        out[each.key] = value.int_value if value.HasField("int_value") else value.string_value
    return out
