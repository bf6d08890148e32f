"""A collector of traces on a real socket, in a thread of its own: keeps what it is sent, answers as it is told to."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from schemas.rpc.otlp.v1.otlp_pb2 import ExportTraceRequest, Span

if TYPE_CHECKING:
    from collections.abc import Iterator


class OtlpCollector:
    """`answers`: statuses of the next requests, 200 once they are used up. `body`: what it says with a 200."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[int] = []
        self.body = b""
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
            status = collector.take(self.path, content)
            body = collector.body if status == 200 else b""
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = OtlpCollector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="otlp collector")
    thread.start()
    try:
        yield collector
    finally:
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
