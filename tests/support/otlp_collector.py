"""A collector of traces and metrics on a real socket, in a thread of its own: keeps what comes, answers as told to."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from schemas.rpc.otlp.v1.otlp_pb2 import ExportMetricsRequest, ExportTraceRequest, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from schemas.rpc.otlp.v1.otlp_pb2 import HistogramPoint, NumberPoint, Resource


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
        """Of spans, those that were answered well."""
        self.metrics: list[ExportMetricsRequest] = []
        """Of metrics, likewise."""
        self.headers: list[dict[str, str]] = []
        """Of each request, names in lower case."""
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
        if status == 200 and path.endswith("/metrics"):
            self.metrics.append(ExportMetricsRequest.FromString(content))
        elif status == 200:
            self.requests.append(ExportTraceRequest.FromString(content))
        return status


@contextlib.contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """One that runs until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
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


def told(of: Span | Resource | NumberPoint | HistogramPoint) -> dict[str, str | int]:
    """Its attributes."""
    out: dict[str, str | int] = {}
    for each in of.attributes:
        value = each.value
        out[each.key] = value.int_value if value.HasField("int_value") else value.string_value
    return out


def samples_of(requests: Iterable[ExportMetricsRequest]) -> dict[str, float]:
    """What they tell, as `/metrics` has it; the later wins, and what is told to have ended is not there."""
    found: dict[str, float] = {}
    for metric in (m for r in requests for each in r.resource_metrics for s in each.scope_metrics for m in s.metrics):
        for point in (*metric.gauge.data_points, *metric.sum.data_points):
            name = sample_name(metric.name, told(point))
            if point.flags & 1:
                found.pop(name, None)
            else:
                found[name] = point.as_double
        for series in metric.histogram.data_points:
            labels = told(series)
            edges = (*map(str, series.explicit_bounds), "+Inf")
            for edge, upto in zip(edges, accumulate(series.bucket_counts), strict=True):
                found[sample_name(f"{metric.name}_bucket", {**labels, "le": edge})] = upto
            found[sample_name(f"{metric.name}_count", labels)] = series.count
            found[sample_name(f"{metric.name}_sum", labels)] = series.sum
    return found


def sample_name(name: str, labels: Mapping[str, str | int]) -> str:
    """As `/metrics` writes it."""
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
