"""What is used of prometheus-client, without its web server and its client: 1.5 MB, which nothing here calls. No I/O.

The library loads these first of all, and derives from some of their classes. Its `start_http_server` and
`push_to_gateway` do nothing in this process, unless it was loaded before.
"""

from __future__ import annotations

from typing import Final

from indexer.stand_ins import without

_UNUSED: Final = {
    "http.server": ("BaseHTTPRequestHandler",),
    "socketserver": ("ThreadingMixIn",),
    "urllib.request": (
        *("BaseHandler", "HTTPHandler", "HTTPRedirectHandler", "HTTPSHandler"),
        *("Request", "build_opener"),
    ),
    "wsgiref.simple_server": ("WSGIRequestHandler", "WSGIServer", "make_server"),
}

with without({module: {name: type(name, (), {}) for name in names} for module, names in _UNUSED.items()}):
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

__all__ = [
    "CONTENT_TYPE_LATEST",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
    "generate_latest",
]
