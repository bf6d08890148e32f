"""Nothing that is secret comes out anywhere: planted through every door there is, then looked for in all that is said.

A real service on a real store, with an engine that announces the planted tokens. The doors are those that the
application and the gRPC descriptors list, so that one that is added is tried here without anybody's thinking of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import httpx
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from api.access.gates import open_gates
from api.demo.engine import EngineSimulator
from api.rest.app import create_app
from schemas.rpc.indexer.v1 import indexer_pb2
from schemas.rpc.kvindexer.v1 import kvindexer_pb2
from tests.support import planted
from tests.support.core_events import as_array, payload, removed, stored
from tests.support.fake_node import FakeNode
from tests.support.otlp_collector import OtlpCollector, otlp_collector
from tests.support.redis_servers import own_server, wait_for
from tests.support.text_models import published

DEADLINE_S: Final = 60.0
SHOWN: Final = (None, planted.BEARER, planted.STRANGER)
FEWER: Final = 7
"""Of the bodies only every so many where none is read."""
ENDLESS: Final = frozenset({"WatchSources"})


class Running(NamedTuple):
    """One service, what came out of it, and its store."""

    process: subprocess.Popen[bytes]
    url: str
    rpc: str
    log: Path
    look: Any
    folder: Path
    collector: OtlpCollector


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With access control, a store that wants a password, a hash secret, a tokenizer, and every log line there is."""
    folder = tmp_path_factory.mktemp("leaks")
    digest = hashlib.sha256(planted.BEARER.encode()).hexdigest()
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps([{"name": "known", "sha256": digest, "scopes": ["lookup", "report", "admin"]}]))
    log = folder / "log"
    user = ("--user", "svc", "on", f">{planted.STORE_PASSWORD}", "~*", "&*", "+@all")
    with (
        own_server(folder, *user) as store,
        otlp_collector() as collector,
        EngineSimulator() as engine,
        log.open("wb") as out,
    ):
        settings = {
            "server": {"port": 0, "grpc_port": 0},
            "auth": {"tokens_file": str(tokens), "hash_secret": planted.HASH_SECRET},
            "compat": {"anonymous": True},
            "redis": {"url": f"redis://svc:{planted.STORE_PASSWORD}@127.0.0.1:{store.port}"},
            "telemetry": {
                "log_level": "debug",
                "otlp_endpoint": collector.url,
                "otlp_headers": {"x-key": planted.COLLECTOR_KEY},
                "otlp_metrics_s": 1,
                "trace_ratio": 1,
            },
            "models": {"tokenizers": {"m": {"file": str(published(folder / "model"))}}},
            "sources": [
                {"pod": "p", "endpoint": engine.endpoint, "replay_endpoint": engine.replay_endpoint, "model": "m"}
            ],
        }
        config = folder / "kvindexer.json"
        config.write_text(json.dumps(settings))
        words = [sys.executable, "-m", "indexer", "serve", "--config", str(config)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=out, env=environment)
        try:
            assert process.stdout is not None
            banner = process.stdout.readline().decode()
            url, rpc = re.search(r"http://[0-9.:]+", banner), re.search(r"grpc://([0-9.:]+)", banner)
            assert url, log.read_text()
            assert rpc
            engine.wait_subscribers(1)
            _speak(engine)
            service = Running(process, url[0], rpc[1], log, store.client(), folder, collector)
            wait_for(lambda: _heard(service), "the engine's batches to be applied")
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE_S)
            process.stdout.close()  # type: ignore[union-attr]
        for sent in collector.raw:
            _assert_clean(sent, "a request to the collector")


def _speak(engine: EngineSimulator) -> None:
    """What engines say of prompts, in every form, and what is no event at all."""
    hashes = list(range(1, 5))
    whole = stored(hashes, planted.TOKENS, block_size=16, extra_keys=[[planted.SALT]] * 4)
    for said in (whole, as_array(whole), removed(4), stored([9], [planted.PROMPT], parent=8, block_size=1)):
        engine.publish(payload(said))
    for broken in (payload(whole)[:-5], planted.PROMPT.encode(), planted.IMAGE, payload({"type": planted.PROMPT})):
        engine.publish(broken)
    engine.publish(payload(stored([planted.PROMPT], planted.TOKENS, block_size=64, lora_name=None)))


def _heard(service: Running) -> bool:
    sources = httpx.get(f"{service.url}/v1/sources", headers=_shown(planted.BEARER), timeout=DEADLINE_S).json()
    return any((source["sequence"] or 0) >= 8 for source in sources["sources"])


def _shown(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def _assert_clean(content: bytes, where: str) -> None:
    found = planted.found_in(content)
    assert not found, f"{where} shows {found}: {_around(content, found[0])!r}"


def _around(content: bytes, found: bytes) -> bytes:
    at = content.index(found)
    return content[max(0, at - 200) : at + 100]


# -- doors -------------------------------------------------------------------------------------------------------------


def _paths() -> list[tuple[str, str]]:
    """Every path and method of REST, the faces included."""
    app = create_app(FakeNode(), gates=open_gates())
    routes = app._app.routes  # type: ignore[attr-defined]
    doors = {(route.path, method) for route in routes for method in route.methods}
    filled = {(re.sub(r"\{\w+(?::path)?\}", "p", path), method) for path, method in doors}
    return sorted(filled | {("/v1/lookup", method) for method in ("POST", "GET", "DELETE")})


@pytest.mark.parametrize(("path", "method"), _paths())
def test_no_answer_of_rest_shows_it(running: Running, path: str, method: str) -> None:
    """Whatever is sent, whoever sends it: neither in the body nor in a header."""
    with httpx.Client(base_url=running.url, timeout=DEADLINE_S) as client:
        step = 1 if method in {"POST", "PUT", "PATCH"} and "pick/" not in path else FEWER
        for number, sent in enumerate(itertools.islice(planted.bodies(), 0, None, step)):
            token = SHOWN[number % len(SHOWN)] if number % 2 else planted.BEARER
            headers = {**sent.headers, **_shown(token)}
            answer = client.request(method, path, content=sent.content, headers=headers, params=sent.query)
            assert answer.status_code < 500, (answer.status_code, sent, answer.text)
            head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items()).encode()
            _assert_clean(head + answer.content, f"{method} {path} ({answer.status_code})")


def _calls() -> list[MethodDescriptor]:
    """Every method of gRPC."""
    services = [*kvindexer_pb2.DESCRIPTOR.services_by_name.values(), *indexer_pb2.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


_PLAIN: Final = frozenset(
    {
        *("pods", "pod_roles", "pod_identifiers", "state", "after", "tenant", "request_id", "group", "scheme"),
        *("lora_name", "strategy"),
    }
)
"""Names, which come back in answers."""


def _filled(kind: Any, only: str | None = None, depth: int = 0) -> Any:  # noqa: ANN401 - messages are not typed
    """A message with something secret in each field that can hold it, or in one."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if field.name in _PLAIN or only not in {None, field.name}:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.is_repeated and depth < 2 and not field.message_type.GetOptions().map_entry:
                getattr(message, field.name).append(_filled(field.message_type, None, depth + 1))
            continue
        value = _value(field)
        if value is not None and field.is_repeated:
            getattr(message, field.name).extend(value)
        elif value is not None:
            setattr(message, field.name, value)
    if "model" in kind.fields_by_name and depth == 0:
        message.model = "m"
    return message


def _value(field: Any) -> Any:  # noqa: ANN401 - as above
    """Something secret of that field's type, if it can hold it."""
    match field.type:
        case FieldDescriptor.TYPE_STRING if "json" in field.name:
            return json.dumps([{"role": "user", "content": planted.PROMPT}])
        case FieldDescriptor.TYPE_STRING:
            return [planted.SALT] if field.is_repeated else planted.SALT
        case FieldDescriptor.TYPE_BYTES:
            return planted.IMAGE
        case FieldDescriptor.TYPE_UINT32 if field.is_repeated:
            return planted.TOKENS
    return None


def _requests(method: MethodDescriptor) -> Iterator[bytes]:
    kind = method.input_type
    yield _filled(kind).SerializeToString()
    for field in kind.fields:
        yield _filled(kind, field.name).SerializeToString()
    yield planted.PROMPT.encode()
    yield planted.IMAGE
    yield _filled(kind).SerializeToString()[:-3]


@pytest.mark.parametrize("method", _calls(), ids=lambda method: method.name)
def test_no_answer_of_grpc_shows_it(running: Running, method: MethodDescriptor) -> None:
    """Messages filled by their descriptors, and such as are none."""
    with grpc.insecure_channel(running.rpc) as channel:
        name = f"/{method.containing_service.full_name}/{method.name}"
        for token in SHOWN:
            metadata = [*_shown(token).items(), ("x-kvindexer-cache-salt", planted.SALT)]
            for asked in _requests(method):
                _assert_clean(_called(channel, name, method, asked, metadata), f"{name} of {asked!r}")


def _called(
    channel: grpc.Channel, name: str, method: MethodDescriptor, asked: bytes, metadata: list[tuple[str, str]]
) -> bytes:
    """All that comes back of one call, as bytes."""
    kinds = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }
    call = kinds[method.client_streaming, method.server_streaming](name)  # type: ignore[operator]
    sent = iter([asked]) if method.client_streaming else asked
    timeout_s = 1.0 if method.name in ENDLESS else DEADLINE_S
    try:
        answer = call(sent, metadata=metadata, timeout=timeout_s)
        return b"".join(answer) if method.server_streaming else answer
    except grpc.RpcError as error:
        if error.code() in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}:  # type: ignore[attr-defined]
            raise
        trailers = error.trailing_metadata() or ()  # type: ignore[attr-defined]
        return f"{error.details()} {trailers!r}".encode()  # type: ignore[attr-defined]


def _commands(service: Running) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Client commands, whose secrets come from files and the environment."""
    prompt, ids, chat = (service.folder / name for name in ("prompt.txt", "ids.json", "chat.json"))
    prompt.write_text(planted.PROMPT)
    ids.write_text(json.dumps(planted.TOKENS))
    chat.write_text(json.dumps({"messages": [{"role": "user", "content": planted.PROMPT}]}))
    for token in (planted.BEARER, planted.STRANGER, f"{planted.STRANGER}\n"):
        environment = {"KVINDEXER_URL": service.url, "KVINDEXER_TOKEN": token}
        yield ["lookup", "--tokens", str(ids), "--model", "m"], environment
        yield ["lookup", "--tokens", str(prompt)], environment
        yield ["lookup", "--prompt", f"@{prompt}", "--model", "m"], environment
        yield ["lookup", "--messages", f"@{chat}", "--model", "m", "--json"], environment
        yield ["sources", "--json"], environment
    secrets = {
        "KVINDEXER_AUTH__HASH_SECRET": planted.HASH_SECRET,
        "KVINDEXER_REDIS__URL": f"redis://svc:{planted.STORE_PASSWORD}@127.0.0.1:1/x?password={planted.STORE_PASSWORD}",
        "KVINDEXER_TELEMETRY__OTLP_ENDPOINT": "http://h:4318",
        "KVINDEXER_TELEMETRY__OTLP_HEADERS": f"{{x-key: {planted.COLLECTOR_KEY}}}",
    }
    yield ["config"], secrets
    yield ["config", "--check"], secrets
    yield ["config", "--json"], {**secrets, "KVINDEXER_REDIS__URL": f"redis://svc:{planted.STORE_PASSWORD}@h:1"}
    yield ["config"], {"KVINDEXER_TELEMETRY__OTLP_HEADERS": f"{{x-key: {planted.COLLECTOR_KEY}"}
    yield (
        ["config"],
        {"KVINDEXER_REDIS__URL": f"http://svc:{planted.STORE_PASSWORD}@h:1", "KVINDEXER_AUTH__HASH_SECRET": ""},
    )


def test_no_command_shows_it(running: Running) -> None:
    """Neither what is printed nor what is complained about."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
    for words, environment in _commands(running):
        done = subprocess.run(
            [sys.executable, "-m", "indexer", *words],
            capture_output=True,
            timeout=DEADLINE_S,
            env=plain | environment,
            check=False,
        )
        _assert_clean(done.stdout + done.stderr, f"kvindexer {words[0]}")


# -- afterwards --------------------------------------------------------------------------------------------------------


def test_what_the_service_says_of_itself_does_not_show_it(running: Running) -> None:
    """Every list, the metrics, the settings, and the log at its most talkative: after all that was asked above."""
    paths = ("/metrics", "/readyz", "/v1/config", "/v1/sources", "/v1/sources/p/history", "/v1/partitions")
    for path in (*paths, "/v1/version", "/openapi.json", "/workers", "/v1/sources/p/blocks/1"):
        answer = httpx.get(running.url + path, headers=_shown(planted.BEARER), timeout=DEADLINE_S)
        assert answer.status_code in {200, 404}, (path, answer.text)
        _assert_clean(answer.content, path)
    log = running.log.read_bytes()
    assert b"DEBUG" in log
    _assert_clean(log, "the log")


def test_no_trace_shows_it(running: Running) -> None:
    """Of a lookup, and of what the engine said; of all that the other tests ask it is looked at in the end."""
    asked = {"token_ids": planted.TOKENS, "model": planted.PROMPT, "cache_salt": planted.SALT}
    for named in ({}, {"pods": ["nobody"]}, {"pods": ["p", "nobody"]}):
        body = {**asked, **named}
        answer = httpx.post(f"{running.url}/v1/lookup", json=body, headers=_shown(planted.BEARER), timeout=DEADLINE_S)
        assert 200 == answer.status_code, answer.text
    kinds = {"lookup", "batch apply", "journal"}

    wait_for(lambda: kinds <= {span.name for span in running.collector.spans}, "spans of every kind")
    for sent in running.collector.raw:
        _assert_clean(sent, "a request to the collector")


def test_the_store_does_not_hold_it(running: Running) -> None:
    """Names of keys, fields and values, whatever their type."""
    look, seen = running.look, 0
    for key in look.scan_iter():
        _assert_clean(key, "the name of a key")
        kind = look.type(key)
        with contextlib.suppress(KeyError):
            read = {b"hash": look.hgetall, b"string": look.get, b"stream": look.xrange, b"set": look.smembers}[kind]
            _assert_clean(_flat(read(key)), f"the key {key!r}")
            seen += 1
        if kind == b"zset":
            _assert_clean(_flat(look.zrange(key, 0, -1)), f"the key {key!r}")
    assert seen > 5


def _flat(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b"\n".join(_flat(each) for pair in value.items() for each in pair)
    if isinstance(value, (list, tuple, set)):
        return b"\n".join(map(_flat, value))
    return str(value).encode()


def test_no_process_carries_it_among_its_arguments(running: Running) -> None:
    """Anybody on the machine may read those: of the service, and of all that it started."""
    pids = [running.process.pid]
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += map(int, (task / "children").read_text().split())
        _assert_clean(Path(f"/proc/{pid}/cmdline").read_bytes(), "a process's arguments")
    assert running.process.poll() is None


@pytest.mark.parametrize(
    "said", [planted.PROMPT.encode(), planted.IMAGE, json.dumps(planted.TOKENS).encode(), b"redis://svc:s3cr3t-store@h"]
)
def test_the_search_finds_what_is_planted(said: bytes) -> None:
    """Else all of the above would prove nothing."""
    with pytest.raises(AssertionError, match="a line shows"):
        _assert_clean(b"before " + said + b" behind", "a line")
