"""Engines as a gateway sees them: HTTP servers that speak like vLLM, on real sockets.

Completions and chat completions, whole or as a stream of events, with usage and what of it came from the cache; models,
health and metrics. A body that is no such request is refused as vLLM refuses it. Each answer says who gave it and what
came: `x-engine` (the port), `x-body-sha256`. What an engine answered is kept under the request's `x-request-id`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MODEL: Final = "m"
WORDS: Final = ("the", "answer", "is", "here", "and", "goes", "on")
_METRICS: Final = (
    "# TYPE vllm:num_requests_running gauge\n"
    'vllm:num_requests_running{{model_name="m"}} {running}\n'
    "# TYPE vllm:num_requests_waiting gauge\n"
    'vllm:num_requests_waiting{{model_name="m"}} 0\n'
)


def answer_to(path: str, asked: dict[str, Any], cached: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What an engine says to a request: the whole answer, and the same as the chunks of a stream."""
    words = [WORDS[i % len(WORDS)] for i in range(int(asked.get("max_tokens") or 1))]
    usage = {
        "prompt_tokens": _length(asked),
        "completion_tokens": len(words),
        "total_tokens": _length(asked) + len(words),
    }
    told = {"prompt_tokens_details": {"cached_tokens": cached}}
    chat = path.endswith("/chat/completions")
    head = {"id": "cmpl-1", "model": MODEL, "object": "chat.completion" if chat else "text_completion"}
    text = " ".join(words)
    choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    whole = {**head, "choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": {**usage, **told}}
    chunks = [
        {**head, "choices": [{"index": 0, **({"delta": {"content": word}} if chat else {"text": word})}]}
        for word in words
    ]
    if (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": {**usage, **told}})
    return whole, chunks


def _length(asked: dict[str, Any]) -> int:
    """Tokens of the prompt, where it is told as such; else its characters, which is as good here."""
    return len(asked["prompt"]) if "prompt" in asked else sum(len(str(message)) for message in asked["messages"])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and content leave in one packet, or who waits for both waits for an acknowledgement first
    server: _Server

    def do_GET(self) -> None:
        """Models, health, metrics."""
        path = self.path.partition("?")[0]
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if path == "/v1/models":
            self._say(HTTPStatus.OK, {"object": "list", "data": [{"id": MODEL, "object": "model"}]}, b"")
        elif path == "/metrics":
            self._send(HTTPStatus.OK, _METRICS.format(running=self.server.running).encode(), b"", "text/plain")
        elif path == "/health":
            self._send(HTTPStatus.OK, b"", b"", "text/plain")
        else:
            self._say(HTTPStatus.NOT_FOUND, {"detail": "Not Found"}, b"")

    def do_POST(self) -> None:
        """Completions of both kinds."""
        body = b"".join(self._body())
        try:
            asked = json.loads(body)
            whole, chunks = answer_to(self.path, asked, self.server.cached(asked))
        except (ValueError, KeyError, TypeError, AttributeError):
            refusal = {"error": {"message": "not a request", "type": "BadRequestError", "code": 400}}
            self._say(HTTPStatus.BAD_REQUEST, refusal, body)
            return
        self.server.begin()
        try:
            if asked.get("stream"):
                self._stream(chunks, body)
            else:
                self._say(HTTPStatus.OK, whole, body)
        finally:
            self.server.end()

    def _body(self) -> Iterator[bytes]:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            yield self.rfile.read(int(self.headers.get("content-length") or 0))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _say(self, status: HTTPStatus, told: dict[str, Any], body: bytes) -> None:
        self._send(status, json.dumps(told).encode(), body, "application/json")

    def _head(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.server.answered(self.headers.get("x-request-id", ""), dict(self.headers.items()))
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("x-engine", str(self.server.server_address[1]))
        self.send_header("x-body-sha256", hashlib.sha256(body).hexdigest())

    def _send(self, status: HTTPStatus, content: bytes, body: bytes, content_type: str) -> None:
        self._head(status, body, content_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, chunks: Sequence[dict[str, Any]], body: bytes) -> None:
        self._head(HTTPStatus.OK, body, "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in (*map(json.dumps, chunks), "[DONE]"):
            self.server.before_chunk()
            event = f"data: {chunk}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name that the library gives
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, cached: Callable[[dict[str, Any]], int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cached = cached
        self.running = 0
        self.before_chunk: Callable[[], object] = lambda: None
        self.requests: Counter[str] = Counter()
        self.headers: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """One more is being answered."""
        with self._lock:
            self.running += 1

    def end(self) -> None:
        """One is over."""
        with self._lock:
            self.running -= 1

    def answered(self, request_id: str, headers: dict[str, str]) -> None:
        """Note that this request was answered here."""
        with self._lock:
            self.requests[request_id] += 1
            self.headers[request_id] = {name.lower(): value for name, value in headers.items()}

    def handle_error(self, *_: object) -> None:
        """A client that hung up is its own business."""


class OpenAiEngines:
    """`count` of them on free ports; a context manager. `cached`: tokens that all of them say came from the cache."""

    def __init__(self, count: int, cached: Callable[[dict[str, Any]], int] = lambda _: 0) -> None:
        self._servers = [_Server(cached) for _ in range(count)]
        self.ports = [int(server.server_address[1]) for server in self._servers]

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def answered(self) -> dict[str, list[int]]:
        """By request id, the engines that answered it, each as often as it did."""
        told: dict[str, list[int]] = {}
        for server in self._servers:
            for request_id, times in server.requests.items():
                told.setdefault(request_id, []).extend([int(server.server_address[1])] * times)
        return told

    def headers_of(self, request_id: str) -> dict[str, str]:
        """With which a request came to whoever answered it."""
        (found,) = (server.headers[request_id] for server in self._servers if request_id in server.headers)
        return found

    def before_chunks(self, call: Callable[[], object]) -> None:
        """Have this done before each event of a stream: it may wait."""
        for server in self._servers:
            server.before_chunk = call

    def reuse(self, cached: Callable[[dict[str, Any]], int]) -> None:
        """So many tokens of a request come from the cache, by what all of them say from now on."""
        for server in self._servers:
            server.cached = cached
