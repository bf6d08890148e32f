"""A replica beside a gateway: on a Unix socket alone, with the sources of one model, whatever happens to the others."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import pytest

from kvindexer_client import Refused
from tests.support.core_service import RunningService
from tests.support.ext_proc import BUFFERED, NONE, Stream, destination_of
from tests.support.in_trouble import TIMES, Engine, tokens_of
from tests.support.moved import OF_CHOSEN_MODELS, check_moved
from tests.support.redis_servers import own_server
from tests.support.sidecar import Sidecar, without_network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.redis_servers import Server

LLAMA, OTHER = "pod-a", "pod-b"
ENDPOINT: Final = "127.0.0.1:1"
"""Of llama's engine, as gateways know it."""
MODELS: Final = ("llama", "other", "third")
"""Followed, followed elsewhere, and heard of by nobody."""
OURS: Final = {"api", "indexer", "schemas"}
PACKAGES: Final = {
    *(
        "anyio",
        "cachetools",
        "csimdjson",
        "hiredis",
        "httptools",
        "msgspec",
        "numpy",
        "prometheus_client",
        "redis",
        "simdjson",
        "starlette",
    ),
    *("typing_extensions", "uvicorn", "uvloop", "xxhash", "zstandard"),
    *("_distutils_hack", "cryptography"),  # of a test's environment, not of an image
    "opentelemetry",  # its names alone: the Redis library looks for them, and is told that there are none
}
"""That a sidecar loads, beside Python's own and ours."""
UNUSED: Final = {
    "html",
    "http.server",
    "logging.config",
    "multiprocessing",
    "socketserver",
    "unittest",
    "urllib.request",
}
"""Of Python's own, half a megabyte each with what they bring."""
UNUSED_OURS: Final = (
    "api.epp.server",
    "api.rest.openapi",
    "api.rpc.server",
    "indexer.collect.fleet",
    "indexer.discovery",
    "indexer.explain.asking_why",
    "indexer.otlp",
    "indexer.partitions.owner",
    "indexer.settings.documents",
    "indexer.tracing",
)
LISTENS: Final = "0A"
"""A socket's state in /proc/net/tcp."""
GATEWAY: Final = """
import json, socket, sys
from kvindexer_client import Client

path, pod, tokens = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with Client("unix:" + path, timeout_s=20) as index:
    answer = index.lookup(tokens, model="llama")
    ranked = index.rank(["elsewhere", pod], tokens, model="llama", timeout_s=20)
    picked = index.pick({"model": "llama", "prompt": tokens, "max_tokens": 1})
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[4])), timeout=5)
    network = "reached"
except OSError:
    network = "none"
print(json.dumps([network, answer.pods[0].matched_tokens, ranked.pods, [p.pod for p in picked.pods]]))
"""


class Beside:
    """A store, an engine of each of two models, a service that collects, and the sidecar, which follows llama."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self.server = server
        self.engines = {pod: Engine(pod, replay=True) for pod in (LLAMA, OTHER)}
        for engine in self.engines.values():
            stack.callback(engine.close)
        tokens = folder / "tokens.yaml"
        tokens.write_text("[]")
        tokens.chmod(0o600)
        self.path = folder / "kv.sock"
        settings = {**TIMES, "auth__tokens_file": str(tokens), "auth__uds": "anonymous"}
        self.sidecar = stack.enter_context(Sidecar(self.path, server.url, "--follow", "llama", **settings))
        flags = [
            f"{self.engines[LLAMA].flag},model=llama,address={ENDPOINT}",
            f"{self.engines[OTHER].flag},model=other",
        ]
        self.owner = stack.enter_context(RunningService(flags, **TIMES, redis__url=server.url, redis__replica="owner"))
        self.banner = self.sidecar.wait_listening()

    def say(self, *prompts: int) -> None:
        """Both engines hold these from now on."""
        for engine in self.engines.values():
            engine.say(prompts)

    def knows(self, prompt: int, *, state: str = "live") -> bool:
        """Whether the sidecar has it of llama's engine, in that state."""
        pods = self.sidecar.client.lookup(tokens_of(prompt), model="llama").pods
        return [(LLAMA, len(tokens_of(prompt)), state)] == [
            (each.pod, each.matched_tokens, each.state) for each in pods
        ]


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Prompt 0 is known."""
    folder = tmp_path_factory.mktemp("sidecar")
    with own_server(folder) as server, ExitStack() as stack:
        made = Beside(server, folder, stack)
        for engine in made.engines.values():
            engine.wait_subscribers()
        made.say(0)
        made.sidecar.wait_for(lambda: made.knows(0), "the first prompt")
        yield made


def test_it_listens_on_its_socket_alone(beside: Beside) -> None:
    """No port of any kind."""
    assert beside.banner.startswith(f"kvindexer listens on unix:{beside.path}; sources: 0; roles: lookup")
    held = {link.readlink().name for link in Path(f"/proc/{beside.sidecar.pid}/fd").iterdir()}
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path("/proc/net", kind).read_text().splitlines()[1:]]

    assert not [row for row in rows if row[3] == LISTENS and f"socket:[{row[9]}]" in held]


def test_what_it_never_needs_is_not_loaded(beside: Beside) -> None:
    """A gateway has many sidecars: gRPC, tokenizers and what checks bodies for FastAPI take 40 MB in each."""
    mapped = Path(f"/proc/{beside.sidecar.pid}/maps").read_text()

    assert "libpython" in mapped or "python3" in mapped
    assert not [name for name in ("cygrpc", "tokenizers", "_pydantic_core") if name in mapped]


def _loaded(sidecar: Sidecar) -> set[str]:
    """Modules that it has imported so far, by the interpreter's own account (`-X importtime`)."""
    return {line.rpartition("|")[2].strip() for line in sidecar.log().splitlines() if line.startswith("import time:")}


def test_it_loads_what_it_needs_and_all_of_it_before_it_listens(tmp_path: Path) -> None:
    """Each package counts once for each gateway, and whoever asks first waits for no import.

    What is new here costs megabytes in every sidecar: see decisions/0049 for how to keep it out.
    """
    with (
        own_server(tmp_path) as server,
        Sidecar(tmp_path / "kv.sock", server.url, "--follow", "llama", python=("-X", "importtime")) as sidecar,
    ):
        sidecar.wait_listening()
        sidecar.wait_for(lambda: bool(sidecar.readiness()["ready"]), "the store")
        before = _loaded(sidecar)
        prompt, client = tokens_of(0), sidecar.client
        client.lookup(prompt, model="llama")
        client.rank(["elsewhere"], prompt, model="llama")
        client.pick({"model": "llama", "prompt": prompt})
        client.routed({"pod": "elsewhere", "model": "llama", "token_ids": prompt})
        body = json.dumps({"model": "llama", "token_ids": prompt}).encode()
        for path in ("/v1/lookup", "/v1/recommend"):
            client.request("POST", path, body, headers=(("content-type", "application/json"),))
        for path in ("/healthz", "/readyz", "/metrics", "/v1/sources", "/v1/version"):
            client.request("GET", path)
        tried = {name.partition(".")[0] for name in before} - sys.stdlib_module_names
        packages = {name for name in tried if importlib.util.find_spec(name) is not None}

        assert set() == _loaded(sidecar) - before
        assert not packages - PACKAGES - OURS
        assert not before & UNUSED
        assert not [name for name in before if name.startswith(UNUSED_OURS)]


def test_only_the_chosen_model_is_known(beside: Beside) -> None:
    """Of the other it is known that it is followed elsewhere, and of a third that nobody has it."""
    client = beside.sidecar.client

    assert [LLAMA] == [source["pod"] for source in client.sources()]
    for model, reason in (("other", "other_model"), ("third", "model_unknown")):
        answer = client.lookup(tokens_of(0), model=model)
        assert ("no_signal", reason, []) == (answer.state, answer.reason, answer.pods)
    told = beside.sidecar.readiness()
    assert (True, {"llama": 1}, 1) == (
        told["ready"],
        told["detail"]["models_followed"],
        told["detail"]["sources_passed_over"],
    )
    assert ["llama"] == client.request("GET", "/v1/sources").json()["models_followed"]
    assert "models_followed" not in beside.owner.call("GET", "/v1/sources").json()
    check_moved([beside.sidecar.metrics()], OF_CHOSEN_MODELS)


def test_who_may_open_the_socket_may_ask_and_report(beside: Beside) -> None:
    """Without a token, also with one that is for the engine; what changes sources takes a token of this service."""
    client = beside.sidecar.client

    headers = (("content-type", "application/json"), ("authorization", "Bearer for-the-engine"))
    body = json.dumps({"model": "llama", "token_ids": tokens_of(0)}).encode()
    assert LLAMA == client.request("POST", "/v1/lookup", body, headers=headers).json()["pods"][0]["pod"]
    assert 1 == client.routed({"pod": LLAMA, "model": "llama", "token_ids": tokens_of(0)})["accepted"]
    with pytest.raises(Refused) as refused:
        client.clear_source(LLAMA)
    assert (403, "scope.missing") == (refused.value.status, refused.value.code)


def test_a_gateway_without_any_network(beside: Beside) -> None:
    """In a network namespace of its own, where nothing is but this socket, it is told the right pod.

    Where none can be made, which takes root or user namespaces, it is told the same, with a network.
    """
    way = without_network()
    if way is None:
        print("SKIPPED: no network namespace can be made here (unshare --net): the gateway has a network")
    port = beside.owner.url.rpartition(":")[2]
    words = [sys.executable, "-c", GATEWAY, str(beside.path), LLAMA, json.dumps(tokens_of(0)), port]
    done = subprocess.run([*(way or ()), *words], capture_output=True, text=True, check=False, timeout=60)

    assert 0 == done.returncode, done.stderr
    network, matched, ranked, picked = json.loads(done.stdout)
    assert ("reached" if way is None else "none") == network
    assert (len(tokens_of(0)), [LLAMA, "elsewhere"], [LLAMA]) == (matched, ranked, picked)


async def _picked(channel: grpc.aio.Channel, body: bytes, *subset: str) -> list[str] | None:
    """The destination of that request; None: the gateway decides."""
    stream = Stream(channel, BUFFERED, NONE)
    hint = {"envoy.lb.subset_hint": {"x-gateway-destination-endpoint-subset": list(subset)}}
    await stream.headers(metadata=hint if subset else None)
    await stream.said()
    await stream.body(body)
    answer = await stream.said()
    assert answer is not None
    assert not answer.HasField("immediate_response")
    return destination_of(answer)


def test_a_sidecar_that_picks_for_envoy(beside: Beside) -> None:
    """Of the chosen model, its engine; of others the gateway decides, as it does by `/v1/pick`: ours would refuse."""
    settings = {"models__follow": "[llama]", "server__epp_port": "0", "redis__url": beside.server.url}
    with RunningService([], roles="lookup,epp", redis__replica="picker", **TIMES, **settings) as picker:
        picker.wait_for(lambda: picker.ask(tokens_of(0), model="llama").state == "exact", "the first prompt")

        async def ask() -> list[list[str] | None]:
            async with grpc.aio.insecure_channel(picker.banner.split("epp://")[1].split(";")[0]) as channel:
                bodies = [json.dumps({"model": model, "prompt": tokens_of(0)}).encode() for model in MODELS]
                told = [await _picked(channel, body) for body in bodies]
                return [*told, await _picked(channel, b"no request", "10.9.9.9:1")]

        assert [[ENDPOINT], None, None, None] == asyncio.run(ask())
        for model, status in zip(MODELS, (200, 204, 204), strict=True):
            body = {"model": model, "prompt": tokens_of(0)}
            assert status == picker.call("POST", "/v1/pick", body).status_code


def test_it_answers_while_the_store_and_every_other_replica_are_away(beside: Beside) -> None:
    """From memory, and says that it is stale; when they are back it is right again, also about what came meanwhile."""
    sidecar = beside.sidecar
    beside.server.freeze()
    beside.owner.send_signal(signal.SIGSTOP)
    try:
        sidecar.wait_for(lambda: beside.knows(0, state="stale"), "what is known to be stale")
        assert "degraded" == sidecar.client.lookup(tokens_of(0), model="llama").state
        assert [LLAMA] == [each.pod for each in sidecar.client.pick({"model": "llama", "prompt": tokens_of(0)}).pods]
        beside.say(1)
    finally:
        beside.server.thaw()
        beside.owner.send_signal(signal.SIGCONT)
    sidecar.wait_for(lambda: beside.knows(1), "what came meanwhile")
    beside.say(2)
    sidecar.wait_for(lambda: beside.knows(2), "what comes afterwards")
