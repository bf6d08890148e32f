"""The command with a store: what it says at the start, and its doors while the store is there and while it is not."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.redis_servers import free_port, own_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
ENVIRONMENT["KVINDEXER_SERVER__GRPC_PORT"] = "0"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    words = [sys.executable, "-m", "indexer", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, env=ENVIRONMENT, check=False)


class Service:
    """`serve` on a free port; `banner` is the line that says where."""

    def __init__(self, *arguments: str) -> None:
        words = [sys.executable, "-m", "indexer", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert self.process.stdout is not None
        self.banner = self.process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", self.banner)
        assert found, self.process.communicate()[1]
        self.url = found[0]

    def get(self, path: str) -> Any:  # noqa: ANN401  JSON
        """What it answers, whatever the status."""
        return httpx.get(self.url + path, timeout=DEADLINE_S).json()

    def metrics(self) -> dict[str, float]:
        """Samples of the store by name."""
        lines = httpx.get(f"{self.url}/metrics", timeout=DEADLINE_S).text.splitlines()
        samples = (line.rpartition(" ") for line in lines if re.match(r"kvindexer_(redis|journal|partitions)", line))
        return {name: float(value) for name, _, value in samples}

    def wait_for(self, look: Callable[[], object], what: str) -> None:
        """Return when it holds; fail by its name at the deadline."""
        ends_at = time.monotonic() + DEADLINE_S
        while not look():
            assert time.monotonic() < ends_at, f"waited for {what}: {self.get('/v1/partitions')}"
            time.sleep(0.02)

    def end(self) -> str:
        """Ctrl-C; what it logged."""
        self.process.send_signal(signal.SIGINT)
        _, log = self.process.communicate(timeout=DEADLINE_S)
        assert 0 == self.process.returncode, log
        return log


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Service]:
    """Killed at the end, if it is there still."""
    service = Service(*arguments)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.communicate()


def test_a_store_that_does_not_do_is_told_before_anything_listens(tmp_path: Path) -> None:
    """With what to change; exit code 2."""
    with own_server(tmp_path, "--maxmemory-policy", "allkeys-lru") as server:
        done = run("serve", "--port", "0", "--redis-url", server.url)

    assert (2, "") == (done.returncode, done.stdout)
    assert "kvindexer: redis.url: the store: it is not what this service needs (maxmemory-policy is" in done.stderr
    assert "set it to noeviction)" in done.stderr.splitlines()[-1]


def test_a_stop_while_the_store_is_waited_for() -> None:
    """Clean, and nobody is told that it listens."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        words = [sys.executable, "-m", "indexer", "serve", "--port", "0", "--redis-url", url]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE_S)

    assert (0, "") == (process.returncode, out)
    assert all(" INFO kvindexer.serve: " in line for line in err.splitlines()), err
    assert err.endswith("stopped\n")


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["config", "--check"]])
def test_certificates_that_cannot_be_read_are_told(command: list[str], tmp_path: Path) -> None:
    """Not as a store that does not answer."""
    missing = tmp_path / "ca.pem"
    done = run(*command, "--redis-url", f"rediss://u:hush@127.0.0.1?ca={missing}")

    assert (2, "") == (done.returncode, done.stdout)
    assert f"kvindexer: redis.url: ca={missing}: No such file or directory\n" == done.stderr


def test_the_doors_with_a_store(tmp_path: Path) -> None:
    """Where it is, what is owned of it, and commands that are in force when they return."""
    with (
        own_server(tmp_path, "--requirepass", "hush") as server,
        serving(
            "--redis-url",
            f"redis://:hush@127.0.0.1:{server.port}",
            "--source",
            "a=tcp://127.0.0.1:9",
        ) as service,
    ):
        place = f"standalone 127.0.0.1:{server.port}"
        assert service.banner.endswith(f"; sources: 1; roles: collect, lookup; store: {place}, namespace kvi\n")
        service.wait_for(lambda: service.metrics()["kvindexer_partitions_owned"] == 16, "all partitions")
        replicas, _, partitions = run("partitions", "--url", service.url).stdout.partition("\n\n")
        table = partitions.splitlines()
        assert ["(asked)", "live", "16", "0"] == replicas.splitlines()[1].split()[1:5]
        assert 17 == len(table)
        assert {("owner", "live")} == {tuple(line.split()[1:3]) for line in table[1:]}

        added = httpx.post(f"{service.url}/v1/sources", json={"pod": "b", "endpoint": "tcp://127.0.0.1:8"})
        assert (201, "created") == (added.status_code, added.json()["result"])
        assert {"a", "b"} == {source["pod"] for source in service.get("/v1/sources")["sources"]}
        assert 2 == sum(view["sources"] for view in service.get("/v1/partitions")["partitions"])
        assert 1 == service.metrics()["kvindexer_redis_up"]
        assert "hush" not in service.banner + service.end()


def test_a_follower_says_whom_it_follows(tmp_path: Path) -> None:
    """By the name of the replica, for each source and each partition."""
    engine = "a=tcp://127.0.0.1:9"
    with (
        own_server(tmp_path) as server,
        serving("--redis-url", server.url, "--source", engine) as owner,
        serving("--redis-url", server.url, "--roles", "lookup") as follower,
    ):
        owner.wait_for(lambda: owner.get("/v1/sources")["sources"], "the owner to own it")
        name = owner.get("/v1/sources")["sources"][0]["owner"]
        follower.wait_for(
            lambda: {name} == {view["owner"] for view in follower.get("/v1/partitions")["partitions"]}, "its name"
        )
        views = follower.get("/v1/partitions")["partitions"]
        assert ("a", name) == tuple(follower.get("/v1/sources")["sources"][0][key] for key in ("pod", "owner"))
        assert {("follower", "live")} == {(view["role"], view["state"]) for view in views}
        follower.wait_for(lambda: follower.get("/v1/sources")["sources"][0]["copies"] == 0, "its owner's counts")
        assert "kvindexer_blocks{" not in httpx.get(f"{follower.url}/metrics", timeout=DEADLINE_S).text
        told = follower.get("/v1/sources/a/blocks/1f")
        assert ("source.elsewhere", f"this replica only follows 'a'; ask replica {name}") == (
            told["code"],
            told["detail"],
        )
        owner.end()
        follower.end()


def test_the_doors_while_the_store_is_frozen(tmp_path: Path) -> None:
    """Metric and readiness say that it does not answer, and that it answers again; lookups go on."""
    with own_server(tmp_path) as server, serving("--redis-url", server.url) as service:
        service.wait_for(lambda: service.metrics()["kvindexer_partitions_owned"] == 16, "all partitions")
        server.freeze()
        service.wait_for(lambda: service.metrics()["kvindexer_redis_up"] == 0, "the metric to say so")
        assert service.get("/readyz")["detail"]["redis"]["trouble"].startswith("the store: ")
        asked = httpx.post(f"{service.url}/v1/lookup", json={"token_ids": [1, 2, 3]}, timeout=DEADLINE_S)
        assert 200 == asked.status_code
        server.thaw()
        well = {"up": True, "trouble": None}
        service.wait_for(lambda: service.get("/readyz")["detail"]["redis"] == well, "it to answer again")
        service.wait_for(lambda: service.metrics()["kvindexer_redis_up"] == 1, "the metric to say so")
        assert "the store: it answers again" in service.end()


def test_the_doors_without_the_store_that_was_asked_for() -> None:
    """It serves and says what is missing; commands are refused, to be tried again; Ctrl-C ends it at once."""
    with serving("--redis-url", f"redis://:hush@127.0.0.1:{free_port()}", "--source", "a=tcp://127.0.0.1:9") as service:
        ready = httpx.get(f"{service.url}/readyz", timeout=DEADLINE_S)
        assert (503, False) == (ready.status_code, ready.json()["detail"]["redis"]["up"])
        assert 0 == service.metrics()["kvindexer_redis_up"]
        assert {"waiting"} == {view["state"] for view in service.get("/v1/partitions")["partitions"]}
        asked = httpx.post(f"{service.url}/v1/lookup", json={"token_ids": [1, 2, 3]}, timeout=DEADLINE_S)
        assert (200, "no_signal") == (asked.status_code, asked.json()["state"])
        refused = httpx.post(
            f"{service.url}/v1/sources", json={"pod": "b", "endpoint": "tcp://127.0.0.1:8"}, timeout=DEADLINE_S
        )
        assert (503, "store.unavailable", "1") == (
            refused.status_code,
            refused.json()["code"],
            refused.headers["retry-after"],
        )
        log = service.end()

    assert "the store: " in log
    assert "hush" not in log
