"""An engine's HTTP side as far as it tells of itself, on a real socket: paths and what they answer."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from typing import TYPE_CHECKING, Final

from tests.support.busy_engine import load_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METRICS: Final = 'vllm:cache_config_info{{block_size="{}",enable_prefix_caching="{}",num_gpu_blocks="{}"}} 1.0\n'
NO_END: Final = "no end"
"""Instead of a body: bytes come for as long as anybody reads."""

DRIPPING: Final = "dripping"
"""Instead of an answer: a line of its head now and then, for as long as anybody reads."""


def tells(
    *, block_size: int = 4, caching: bool = True, blocks: int = 500, version: str = "0.33.0", model: str = "m"
) -> dict[str, bytes | str]:
    """As a vLLM answers: metrics, version and models; and its own word on its events, replay included."""
    events = {"0": {"enable_kv_cache_events": True, "replay_endpoint": "tcp://*:6557", "buffer_steps": 10_000}}
    return {
        "/metrics": (METRICS.format(block_size, caching, blocks) + load_text(3, 1)).encode(),
        "/version": json.dumps({"version": version}).encode(),
        "/v1/models": json.dumps({"object": "list", "data": [{"id": model, "object": "model"}]}).encode(),
        "/kv_event_sources": json.dumps(events).encode(),
    }


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, answers: Mapping[str, bytes | str | int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.cookies: list[str] = []
        self.over = threading.Event()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path)
        if isinstance(answer, int):
            self._say(answer, b"{}")
        elif answer == NO_END:
            self._without_end()
        elif answer == DRIPPING:
            self._dripping()
        elif isinstance(answer, str):
            self._say(302, b"", answer)
        else:
            self._say(404 if answer is None else 200, answer or b"")

    def _say(self, status: int, body: bytes, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("set-cookie", "a=b")
        self.server.cookies += self.headers.get_all("cookie", [])
        if location is not None:
            self.send_header("location", location)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _without_end(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.over.is_set():
                self.wfile.write(b"#" * 65_536)

    def _dripping(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.server.over.wait(0.02):
                self.wfile.write(b"x: y\r\n")

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


@contextlib.contextmanager
def telling(answers: Mapping[str, bytes | str | int]) -> Iterator[str]:
    """The address (`IP:PORT`) of one that answers so until the block ends; 404 elsewhere.

    A text is where it sends, a number what it refuses with. It sets a cookie with each answer, and fails its block if
    one is brought back.
    """
    server = _Server(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="telling engine")
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
    assert [] == server.cookies
