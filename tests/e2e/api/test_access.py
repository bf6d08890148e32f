"""Access control at every path of REST: who may come in, and what a change of the tokens takes."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.access.gates import open_gates
from api.rest.app import create_app
from api.server import ServerSettings
from tests.support.callers import EVERY, bearer, gates, write_tokens
from tests.support.fake_node import FakeNode
from tests.support.serving import DEADLINE_S, request, served, served_in_thread

JSON = "application/json"
OPEN = {("/healthz", "GET"), ("/readyz", "GET"), ("/metrics", "GET")}
"""What needs no token."""
REPORTED = {("/v1/routed", "POST"), ("/v1/feedback", "POST")}
"""What takes a token of scope `report`; all else takes another."""


def _doors() -> list[tuple[str, str]]:
    """Every path and method that the application has, so that none is forgotten here."""
    app = create_app(FakeNode(), gates=open_gates()._replace(faces=False))
    routes = app._app.routes  # type: ignore[attr-defined]
    found = {(route.path, method) for route in routes for method in route.methods - {"HEAD"}}
    return sorted(found | {("/v1/lookup", "POST")})


def _without(path: str, method: str, others: str = "asks") -> str:
    """Whose token does not open it."""
    return others if (path, method) in REPORTED else "reports"


def _path(template: str) -> str:
    return re.sub(r"\{\w+\}", "x", template)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A server that asks who calls."""
    folder = tmp_path_factory.mktemp("tokens")
    known = gates(folder, ("asks", ("lookup",), None), ("reports", ("report",), None), ("rules", EVERY, None))
    with served_in_thread(FakeNode(), ServerSettings(port=0), known) as bound:
        yield bound


def _ask(
    address: tuple[str, int], method: str, path: str, who: str | None, body: bytes | None = b"{}", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    shown = {} if who is None else {"authorization": bearer(who)}
    try:
        return request(connection, method, path, body, content_type=JSON, **shown, **headers)
    finally:
        connection.close()


@pytest.mark.parametrize(("path", "method"), [door for door in _doors() if door not in OPEN and "pick/" not in door[0]])
def test_every_door_asks_who_calls(address: tuple[str, int], path: str, method: str) -> None:
    """401 without a token and with an unknown one; 403 with one of another scope; then what the door itself says."""
    for who in (None, "stranger"):
        status, headers, body = _ask(address, method, _path(path), who)
        assert 401 == status
        assert headers["www-authenticate"].startswith("Bearer")
        assert json.loads(body)["code"] in {"token.missing", "token.unknown"}
    status, headers, body = _ask(address, method, _path(path), _without(path, method))
    assert (403, "scope.missing") == (status, json.loads(body)["code"])
    assert 'error="insufficient_scope"' in headers["www-authenticate"]
    assert _ask(address, method, _path(path), "rules")[0] not in {401, 403}


@pytest.mark.parametrize(("path", "method"), sorted(OPEN))
def test_probes_and_metrics_are_open(address: tuple[str, int], path: str, method: str) -> None:
    """They show no prompt and no hash."""
    assert 200 == _ask(address, method, path, None)[0]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        *(("/v1/sources", "POST"), ("/v1/sources", "PUT"), ("/v1/sources/x", "DELETE"), ("/v1/sources/x", "PATCH")),
        *(("/v1/sources/x/clear", "POST"), ("/v1/sources/x/blocks/1", "GET"), ("/v1/config", "GET")),
        *(("/v1/replicas/x/drain", "POST"), ("/v1/replicas/x/drain", "DELETE")),
    ],
)
def test_to_ask_is_not_to_rule(address: tuple[str, int], path: str, method: str) -> None:
    """The scope `lookup` changes nothing."""
    assert 403 == _ask(address, method, path, "asks")[0]


@pytest.mark.parametrize("path", ["/register", "/unregister", "/workers", "/query", "/query_by_hash", "/lookup"])
def test_apis_whose_clients_show_no_token_are_not_there(address: tuple[str, int], path: str) -> None:
    """Not even for those who show one."""
    for who in (None, "rules"):
        status, _, body = _ask(address, "POST", path, who)
        assert 404 == status
        assert {"auth.tokens_file", "compat.anonymous"} <= set(json.loads(body)["detail"].split())


def test_they_are_where_the_operator_says_so(tmp_path: Path) -> None:
    """With `compat.anonymous`; they see the tenant without a name. What is ours asks on."""
    known = gates(tmp_path, ("rules", EVERY, None), anonymous=True)
    with served_in_thread(FakeNode(), ServerSettings(port=0), known) as address:
        assert 200 == _ask(address, "GET", "/workers", None, None)[0]
        assert 401 == _ask(address, "GET", "/v1/sources", None, None)[0]


def test_every_refusal_for_who_asks_is_counted_once(tmp_path: Path) -> None:
    """By every way into the service: for the log, which is told status and code and nothing else."""
    node, known = FakeNode(), gates(tmp_path, ("reports", ("report",), None), ("small", ("lookup", "admin"), "small"))
    asked: Counter[tuple[int, str]] = Counter()
    with served_in_thread(node, ServerSettings(port=0, grpc_port=None), known) as address:
        for path, method in _doors():
            if (path, method) in OPEN:
                continue
            for who, status, code in (
                (None, 401, "token.missing"),
                ("stranger", 401, "token.unknown"),
                (_without(path, method, "small"), 403, "scope.missing"),
            ):
                _ask(address, method, _path(path), who)
                asked[status, code] += 1
        assert asked == node.refused
        node.refused.clear()
        other = b'{"token_ids": [1], "tenant": "other"}'
        assert 403 == _ask(address, "POST", "/v1/lookup", "small", other)[0]
        assert 200 == _ask(address, "POST", "/v1/lookup/batch", "small", b'{"items": [%b, %b]}' % (other, other))[0]
        assert {(403, "tenant.forbidden"): 3} == node.refused


def test_refusals_by_the_paths_of_other_services_are_counted_too(tmp_path: Path) -> None:
    """Of callers elsewhere, and of those who ask for a tenant that is not theirs."""
    node, known = FakeNode(), gates(tmp_path, ("rules", EVERY, None), anonymous=True)
    with served_in_thread(node, ServerSettings(port=0, grpc_port=None), known) as address:
        source = b'{"instance_id": 7, "endpoint": "tcp://127.0.0.1:1", "model_name": "m", "block_size": 16}'
        assert 403 == _ask(address, "POST", "/register", None, source, x_forwarded_for="10.0.0.9")[0]
        query = b'{"model_name": "m", "token_ids": [1], "routing_group": "other"}'
        assert 403 == _ask(address, "POST", "/query", None, query)[0]
    assert 2 == sum(node.refused.values())
    assert {403} == {status for status, _ in node.refused}


@pytest.mark.parametrize("controlled", [False, True])
def test_the_log_is_told_who_gave_a_command(tmp_path: Path, *, controlled: bool) -> None:
    """The name of the token, where there is one."""
    node, known = FakeNode(), gates(tmp_path, *([("ops", EVERY, None)] if controlled else []))
    who, said = ("ops", "token ops") if controlled else (None, "a caller")
    source = b'{"pod": "a", "endpoint": "tcp://127.0.0.1:1"}'
    commands = [
        ("POST", "/v1/sources", source),
        ("PUT", "/v1/sources", b"[%b]" % source),
        ("PATCH", "/v1/sources/a", b'{"cordoned": true}'),
        ("POST", "/v1/sources/a/clear", None),
        ("DELETE", "/v1/sources/a", None),
        *((method, "/v1/replicas/a/drain", None) for method in ("POST", "DELETE")),
    ]
    with served_in_thread(node, ServerSettings(port=0, grpc_port=None), known) as address:
        for method, path, body in commands:
            _ask(address, method, path, who, body)

    assert [said] * len(commands) == node.given_by


def _raw(who: str | None, body: bytes = b'{"token_ids":[1,2]}', more: str = "") -> bytes:
    shown = "" if who is None else f"authorization: {bearer(who)}\r\n"
    head = (
        f"POST /v1/lookup HTTP/1.1\r\nhost: x\r\n{shown}content-type: {JSON}\r\ncontent-length: {len(body)}\r\n{more}"
    )
    return head.encode() + b"\r\n" + body


def _statuses(connection: socket.socket, count: int) -> list[int]:
    received = b""
    while len(found := re.findall(rb"HTTP/1.1 (\d+)", received)) < count or not received.endswith(b"}"):
        part = connection.recv(65_536)
        assert part
        received += part
    return [int(status) for status in found]


@pytest.mark.parametrize("way", ["whole", "pieces", "chunked", "together"])
def test_lookups_ask_however_they_arrive(address: tuple[str, int], way: str) -> None:
    """Those that take the short way, known heads among them, and those that come in pieces."""
    asked = ["asks", None, "asks", "stranger", "asks", None, "reports", "asks"]
    expected = [{"asks": 200, None: 401, "stranger": 401, "reports": 403}[who] for who in asked]
    with socket.create_connection(address, timeout=DEADLINE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way == "together":
            connection.sendall(b"".join(map(_raw, asked)))
            assert expected == _statuses(connection, len(asked))
            return
        for who, status in zip(asked, expected, strict=True):
            sent = _raw(who)
            if way == "chunked":
                sent = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", _raw(who, b""))
                sent += b'13\r\n{"token_ids":[1,2]}\r\n0\r\n\r\n'
            for piece in (sent[:60], sent[60:-3], sent[-3:]) if way == "pieces" else (sent,):
                connection.sendall(piece)
            assert [status] == _statuses(connection, 1)


def test_a_token_that_is_taken_away_is_refused_on_connections_that_stand(tmp_path: Path) -> None:
    """Within some seconds, on the short way as well: what it asked a thousand times before is not remembered."""

    async def take_away() -> None:
        known = gates(tmp_path, ("asks", ("lookup",), None), ("stays", ("lookup",), None))
        node = FakeNode()
        async with served(node, ServerSettings(port=0), gates=known) as addresses:
            host, port = addresses[0].removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))

            async def ask(who: str) -> int:
                writer.write(_raw(who))
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))  # type: ignore[index]
                return int(head.split(b" ")[1])

            for _ in range(3):
                assert 200 == await ask("asks")
            write_tokens(tmp_path / "tokens.json", ("stays", ("lookup",), None))
            async with asyncio.timeout(DEADLINE_S):
                while await ask("asks") != 401:  # noqa: ASYNC110 - the file is looked at now and then
                    await asyncio.sleep(0.05)
            assert 200 == await ask("stays")
            assert [("tokens", True)] == node.reloads
            writer.close()

    asyncio.run(take_away())


def _asked(node: FakeNode) -> Any:  # noqa: ANN401 - a tenant, or none
    return node.queries[-1].tenant


@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/hash", "/v1/explain", "/v1/recommend"])
def test_who_is_bound_to_a_tenant_asks_about_it(tmp_path: Path, path: str) -> None:
    """It may leave it out, or name it; another is 403. Who is not bound names any."""
    node = FakeNode()
    known = gates(tmp_path, ("bound", ("lookup",), "x"), ("free", ("lookup",), None))
    with served_in_thread(node, ServerSettings(port=0), known) as address:
        for who, tenant, told in (("bound", None, "x"), ("bound", "x", "x"), ("free", "y", "y"), ("free", None, None)):
            body = {"token_ids": [1], "tenant": tenant} | ({"block_size": 1} if path == "/v1/hash" else {})
            assert 200 == _ask(address, "POST", path, who, json.dumps(body).encode())[0]
            assert told == _asked(node)
        status, _, refused = _ask(address, "POST", path, "bound", json.dumps(body | {"tenant": "y"}).encode())

    assert (403, "tenant.forbidden") == (status, json.loads(refused)["code"])


_SOURCE = {"pod": "p", "endpoint": "tcp://10.0.0.1:5557"}


def test_endpoints_are_within_the_list_whoever_registers(tmp_path: Path) -> None:
    """By one registration, by a whole list, and by the paths whose clients show no token."""
    known = gates(tmp_path, ("rules", EVERY, None), endpoints=("10.0.0.0/8",), anonymous=True)
    outside = _SOURCE | {"endpoint": "tcp://169.254.169.254:80"}
    with served_in_thread(FakeNode(), ServerSettings(port=0), known) as address:
        assert 201 == _ask(address, "POST", "/v1/sources", "rules", json.dumps(_SOURCE).encode())[0]
        status, _, body = _ask(address, "POST", "/v1/sources", "rules", json.dumps(outside).encode())
        assert (403, "endpoint.not_allowed") == (status, json.loads(body)["code"])
        assert [("endpoint", "within auth.endpoints")] == [(e["field"], e["rule"]) for e in json.loads(body)["errors"]]
        status, _, body = _ask(
            address, "PUT", "/v1/sources", "rules", json.dumps([_SOURCE, outside | {"pod": "q"}]).encode()
        )
        assert (403, "[1].endpoint") == (status, json.loads(body)["errors"][0]["field"])
        face = {"instance_id": 7, "model_name": "m", "block_size": 16}
        for endpoint, expected in (("tcp://10.0.0.2:1", 201), ("tcp://11.0.0.2:1", 403)):
            told = json.dumps(face | {"endpoint": endpoint}).encode()
            assert expected == _ask(address, "POST", "/register", None, told)[0]


@pytest.mark.parametrize("controlled", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_who_registers_from_elsewhere(tmp_path: Path, controlled: bool, listed: bool) -> None:
    """Nobody while there is no list. With one: what is within it; all else only who shows a token."""
    known = gates(
        tmp_path,
        *([("rules", EVERY, None)] if controlled else []),  # type: ignore[list-item]
        endpoints=("10.0.0.0/8",) if listed else None,
    )
    source = json.dumps(_SOURCE).encode()
    with served_in_thread(FakeNode(), ServerSettings(port=0), known) as address:

        def status(method: str, path: str, body: bytes = b"{}") -> int:
            """As a proxy forwards it: its caller is elsewhere."""
            return _ask(address, method, path, "rules", body, x_forwarded_for="1.2.3.4")[0]

        assert (201 if listed else 403) == status("POST", "/v1/sources", source)
        assert (200 if listed and controlled else 403) == status("PUT", "/v1/sources", b"[]")
        assert (404 if controlled else 403) == status("DELETE", "/v1/sources/q")
        assert (200 if controlled else 403) == status("GET", "/v1/config")
        if not controlled:
            face = {"instance_id": 7, "model_name": "m", "block_size": 16, "endpoint": "tcp://10.0.0.2:1"}
            assert (201 if listed else 403) == status("POST", "/register", json.dumps(face).encode())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/sources/theirs"),
        ("PATCH", "/v1/sources/theirs"),
        ("POST", "/v1/sources/theirs/clear"),
        ("GET", "/v1/sources/theirs/history"),
        ("GET", "/v1/sources/theirs/blocks/f3c0de00000001"),
    ],
)
def test_sources_of_another_tenant_are_not_there(tmp_path: Path, method: str, path: str) -> None:
    """404, word for word as of a name that nobody has; and they stand."""
    node = FakeNode()
    known = gates(tmp_path, ("ours", EVERY, "x"), ("rules", EVERY, None))
    with served_in_thread(node, ServerSettings(port=0), known) as address:
        for pod, tenant in (("theirs", "y"), ("ours", "x")):
            source = json.dumps(_SOURCE | {"pod": pod, "tenant": tenant}).encode()
            assert 201 == _ask(address, "POST", "/v1/sources", "rules", source)[0]
        body = b'{"cordoned":true}'
        refused = [_ask(address, method, where, "ours", body) for where in (path, path.replace("theirs", "nobody"))]
        documents = [json.loads(answer) | {"request_id": ""} for _, _, answer in refused]

        assert [404, 404] == [status for status, _, _ in refused]
        assert documents[1] == json.loads(json.dumps(documents[0]).replace("theirs", "nobody"))
        assert _ask(address, method, path.replace("theirs", "ours"), "ours", body)[0] == 200
        listed = json.loads(_ask(address, "GET", "/v1/sources?limit=1", "ours", None)[2])
        assert {"x"} >= {source["tenant"] for source in listed["sources"]}
        assert listed["next"] is None
        assert ("y", "theirs") in {(known.tenant, known.pod) for known in node.sources.values()}


def test_a_list_of_one_tenant_replaces_no_other(tmp_path: Path) -> None:
    """Its sources are of that tenant whether they say so or not; saying otherwise is 403."""
    node = FakeNode()
    known = gates(tmp_path, ("ours", EVERY, "x"), ("rules", EVERY, None))
    with served_in_thread(node, ServerSettings(port=0), known) as address:
        theirs = json.dumps(_SOURCE | {"pod": "theirs", "tenant": "y"}).encode()
        assert 201 == _ask(address, "POST", "/v1/sources", "rules", theirs)[0]
        assert 200 == _ask(address, "PUT", "/v1/sources", "ours", json.dumps([_SOURCE]).encode())[0]
        assert 200 == _ask(address, "PUT", "/v1/sources", "ours", b"[]")[0]
        refused = [
            _ask(address, "POST", "/v1/sources", "ours", theirs),
            _ask(address, "PUT", "/v1/sources", "ours", b"[" + theirs + b"]"),
        ]

    assert [403, 403] == [status for status, _, _ in refused]
    assert ["theirs"] == [source.pod for source in node.sources]


@pytest.mark.parametrize("path", ["/v1/partitions", "/v1/config", "/v1/replicas/a/drain"])
def test_what_all_tenants_share_is_for_who_is_bound_to_none(tmp_path: Path, path: str) -> None:
    """Replicas, partitions and settings tell of all of them."""
    known = gates(tmp_path, ("ours", EVERY, "x"))
    with served_in_thread(FakeNode(), ServerSettings(port=0), known) as address:
        status, _, body = _ask(address, "POST" if "drain" in path else "GET", path, "ours", None)

    assert (403, "tenant.forbidden") == (status, json.loads(body)["code"])


def test_reports_of_reuse_are_of_ones_own_tenant(tmp_path: Path) -> None:
    """Those that a caller gives, and that which it is given."""
    node = FakeNode()
    known = gates(tmp_path, ("ours", EVERY, "x"))
    body = {"pod": "a", "request_id": "r", "cached_tokens": 0}
    with served_in_thread(node, ServerSettings(port=0), known) as address:
        taken = _ask(address, "POST", "/v1/feedback", "ours", json.dumps(body).encode())
        refused = _ask(address, "POST", "/v1/feedback", "ours", json.dumps(body | {"tenant": "y"}).encode())
        theirs = _ask(address, "GET", "/v1/reports/consistency?tenant=y", "ours", None)

    assert [202, 403, 403] == [status for status, _, _ in (taken, refused, theirs)]
    assert ["x"] == [report.query.tenant for report in node.fed]
