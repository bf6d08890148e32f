"""What is used of prometheus-client, without its web server and its client: 1.5 MB, which nothing here calls. No I/O.

The library loads these first of all. Names that stand for them meanwhile are all that is wanted here; its
`start_http_server` and `push_to_gateway` do nothing in this process, unless it was loaded before.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNUSED: Final[dict[str, tuple[str, ...]]] = {
    "http.server": ("BaseHTTPRequestHandler",),
    "socketserver": ("ThreadingMixIn",),
    "urllib.request": (
        *("BaseHandler", "HTTPHandler", "HTTPRedirectHandler", "HTTPSHandler"),
        *("Request", "build_opener"),
    ),
    "wsgiref.simple_server": ("WSGIRequestHandler", "WSGIServer", "make_server"),
}
"""Names of each module, as classes: the library derives from some of them."""


@contextlib.contextmanager
def _without_servers() -> Iterator[None]:
    stood_in = [name for name in _UNUSED if name not in sys.modules]
    for name in stood_in:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update({each: type(each, (), {}) for each in _UNUSED[name]})
    try:
        yield
    finally:
        for name in stood_in:
            del sys.modules[name]


with _without_servers():
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

__all__ = [
    "CONTENT_TYPE_LATEST",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
    "generate_latest",
]
