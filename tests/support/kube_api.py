"""A Kubernetes API server as far as pods are concerned: real HTTP, in threads, with faults on demand.

It keeps to what a real one does: versions that only grow, lists in pages out of one snapshot, watches from a version on
with label selectors (a pod that no longer matches is told as deleted), bookmarks, `timeoutSeconds`, 410 for what is
forgotten, tokens and a role, the status as a part of its own, and deletion with grace. Faults are attributes.
"""

from __future__ import annotations

import contextlib
import copy
import http.server
import json
import re
import socket
import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.pods import Object

ADMIN, READER = "admin-token", "reader-token"
NAMESPACE: Final = "serving"
_PATH: Final = re.compile(r"/api/v1(?:/namespaces/(?P<ns>[^/]+))?/pods(?:/(?P<name>[^/]+)(?P<status>/status)?)?")
_TERM: Final = re.compile(r"(!?)([\w./-]+)\s*(?:(==|=|!=|\bin\b|\bnotin\b)\s*(\([^)]*\)|[\w.-]*))?")


class Refusal(Exception):
    """A `Status` instead of what was asked for."""

    def __init__(self, code: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.code = code
        self.headers = headers
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}


class FakeApiServer:
    """One. `tls`: it speaks HTTPS."""

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.pods: dict[tuple[str, str], Object] = {}
        self.log: list[tuple[int, str, Object, Object | None]] = []
        self.forgotten = 100
        """Watches from before it, and lists begun before it, are told 410."""
        self.pages: dict[str, tuple[int, list[Object]]] = {}
        self.tokens = {ADMIN: "admin", READER: "reader"}
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Of the reader: paths and queries."""
        self.refusals: deque[Refusal | None] = deque()
        """Answers to the reader's next requests; None: as it should be."""
        self.lines: deque[bytes] = deque()
        """Sent on the next watch before anything else."""
        self.bookmark_s = 0.05
        self.is_frozen = False
        """Nothing is answered, and nothing sent; connections stand."""
        self.watch_end_s: float | None = None
        """A watch ends after so long, whatever it asked for."""
        self.epoch = 0
        self.over = False
        self.server = _Server(("127.0.0.1", port), _Handler)
        self.server.api = self
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"

    # -- what a test does to it ----------------------------------------------------------------------------------------

    def forget(self) -> None:
        """As after a compaction, a moment after something else happened."""
        with self.changed:
            self.version += 5
            self.forgotten = self.version
            self.pages.clear()
            self.log.clear()

    def cut(self) -> None:
        """End all connections in the middle of what they say."""
        with self.changed:
            self.epoch += 1
            self.changed.notify_all()
        self.server.cut()

    def watches(self) -> int:
        """So many were asked for."""
        return sum("watch" in query for _, query in self.asked)

    # -- what it does --------------------------------------------------------------------------------------------------

    def put(self, kind: str, pod: Object) -> Object:
        """A change, under the lock."""
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        before = self.pods.pop(key, None)
        if kind != "DELETED":
            self.pods[key] = pod
        self.log.append((self.version, kind, copy.deepcopy(pod), before))
        self.changed.notify_all()
        return pod

    def page(self, namespace: str | None, query: Mapping[str, str]) -> Object:
        """Of a list."""
        with self.changed:
            if token := query.get("continue"):
                if token not in self.pages:
                    raise Refusal(410, "Expired")
                version, items = self.pages.pop(token)
            else:
                selector, version = query.get("labelSelector", ""), self.version
                items = [
                    copy.deepcopy(pod) for key, pod in sorted(self.pods.items()) if key[0] == namespace or not namespace
                ]
                items = [pod for pod in items if matches(pod, selector)]
            limit = int(query.get("limit", "0")) or len(items) + 1
            metadata = {"resourceVersion": str(version)}
            if items[limit:]:
                metadata["continue"] = token = uuid.uuid4().hex
                self.pages[token] = (version, items[limit:])
            return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    def events(self, namespace: str | None, query: Mapping[str, str]) -> Iterator[bytes]:
        """Of a watch, until it ends."""
        at, selector = int(query.get("resourceVersion") or self.version), query.get("labelSelector", "")
        lasts_s = self.watch_end_s if self.watch_end_s is not None else float(query.get("timeoutSeconds", "300"))
        ends, epoch = time.monotonic() + lasts_s, self.epoch
        while self.lines:
            yield self.lines.popleft()
        while time.monotonic() < ends and not self.over:
            if self.epoch != epoch:
                raise ConnectionAbortedError
            if at < self.forgotten:
                yield _line("ERROR", Refusal(410, "Expired").body)
                return
            at, new = self._since(at, ends)
            for kind, pod, before in new:
                told = _as_selected(kind, matches(pod, selector), before is not None and matches(before, selector))
                if told is not None and namespace in {None, pod["metadata"]["namespace"]}:
                    yield _line(told, pod)
            if not new and not self.is_frozen and "allowWatchBookmarks" in query and time.monotonic() < ends:
                yield _line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(at)}})

    def _since(self, at: int, ends: float) -> tuple[int, list[tuple[str, Object, Object | None]]]:
        """What happened since a version, and up to which one; waited for so long as there is a bookmark to be told."""
        with self.changed:
            if self.is_frozen or self.version == at:
                self.changed.wait(max(0.0, min(self.bookmark_s, ends - time.monotonic())))
            if self.is_frozen or at < self.forgotten:
                return at, []
            return self.version, [(kind, pod, before) for version, kind, pod, before in self.log if version > at]


class FakeApi:
    """It as tests of any API server want it (`tests.support.cluster.ApiServer`)."""

    kind = "fake"
    admin_token = ADMIN

    def __init__(self, api: FakeApiServer, token_file: Path, ca_file: Path | None = None) -> None:
        self.api, self.url, self.token_file, self.ca_file = api, api.url, token_file, ca_file
        self.forget, self.cut = api.forget, api.cut


def _as_selected(kind: str, is_in: bool, was_in: bool) -> str | None:
    """What who selects sees of a change."""
    if kind == "DELETED" or not is_in:
        return "DELETED" if was_in or (is_in and kind == "DELETED") else None
    return "MODIFIED" if was_in else "ADDED"


def _line(kind: str, obj: Object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def matches(pod: Object, selector: str) -> bool:
    """Whether its labels are those of the selector."""
    labels = pod["metadata"].get("labels") or {}
    return all(_holds(term, labels) for term in re.split(r",(?![^(]*\))", selector) if term)


def _holds(term: str, labels: Mapping[str, str]) -> bool:
    found = _TERM.fullmatch(term.strip())
    assert found is not None, term
    negated, key, operator, value = found.groups()
    if not operator:
        return (key in labels) is not bool(negated)
    wanted = {each.strip() for each in value.strip("()").split(",")}
    return (labels.get(key) in wanted) is (operator in {"=", "==", "in"})


class _Server(http.server.ThreadingHTTPServer):
    api: FakeApiServer
    daemon_threads = True

    def __init__(self, *given: Any) -> None:  # noqa: ANN401  as the base's
        super().__init__(*given)
        self.connections: set[socket.socket] = set()

    def cut(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Who asked hung up."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Nothing is said."""

    def _handle(self) -> None:
        api = self.server.api
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        where = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        who = api.tokens.get((self.headers.get("authorization") or "").removeprefix("Bearer "))
        try:
            self._answer(who, where.path, query, body)
        except Refusal as refusal:
            self._say(refusal.code, refusal.body, **refusal.headers)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815  as the base calls them

    def _trouble(self, path: str, query: dict[str, str]) -> None:
        api = self.server.api
        api.asked.append((path, query))
        while api.is_frozen and not api.over:
            time.sleep(0.02)
        refusal = api.refusals.popleft() if api.refusals else None
        if refusal is not None:
            raise refusal

    def _answer(self, who: str | None, path: str, query: dict[str, str], body: Object) -> None:
        api = self.server.api
        if who != "admin":
            self._trouble(path, query)
        found = _PATH.fullmatch(path)
        if who is None:
            raise Refusal(401, "Unauthorized")
        if found is None:
            raise Refusal(404, "NotFound")
        if who == "reader" and self.command != "GET":
            raise Refusal(403, "Forbidden")
        namespace, name = found["ns"], found["name"]
        if self.command == "GET" and name is None:
            if query.get("watch") in {"true", "1"}:
                self._stream(api.events(namespace, query))
            else:
                self._say(200, api.page(namespace, query))
            return
        with api.changed:
            self._say(
                201 if self.command == "POST" else 200, self._change(namespace, name, bool(found["status"]), body)
            )

    def _change(self, namespace: str | None, name: str | None, is_status: bool, body: Object) -> Object:
        api = self.server.api
        if self.command == "POST":
            pod = {**body, "status": {"phase": "Pending", "qosClass": "BestEffort"}}
            pod["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": namespace, "creationTimestamp": _now()}
            if (namespace, pod["metadata"]["name"]) in api.pods:
                raise Refusal(409, "AlreadyExists")
            return api.put("ADDED", pod)
        pod = copy.deepcopy(api.pods.get((namespace or "", name or "")) or {})
        if not pod:
            raise Refusal(404, "NotFound")
        if self.command == "GET":
            return pod
        if self.command == "PATCH":
            parts = {"status"} if is_status else {"metadata", "spec"}
            return api.put("MODIFIED", _merged(pod, {key: value for key, value in body.items() if key in parts}))
        grace = body.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        if grace == 0 or not pod["spec"].get("nodeName"):
            return api.put("DELETED", pod)
        if "deletionTimestamp" in pod["metadata"]:
            return pod
        pod["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": grace}
        return api.put("MODIFIED", pod)

    def _say(self, status: int, body: Object, **headers: str) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in events:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")


def _merged(target: Object, patch: Object) -> Object:
    """RFC 7386."""
    out = dict(target)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = _merged(out.get(key) or {}, value)
        else:
            out[key] = value
    return out


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@contextlib.contextmanager
def fake_api_server(tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[FakeApiServer]:
    """One that runs until the block ends."""
    api = FakeApiServer(tls, port)
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01}, name="kube api")
    thread.start()
    try:
        yield api
    finally:
        api.over = True
        api.cut()
        api.server.shutdown()
        thread.join()
        api.server.server_close()
