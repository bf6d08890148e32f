"""`kvindexer doctor` on real deployments: what it finds, what it does not show, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from api.cli import doctor
from api.cli.client import CommandFailed
from api.cli.parser import build_parser
from api.demo.engine import EngineSimulator
from indexer.clock import SystemClock
from indexer.doctor.checks import CHECKS
from indexer.settings import BadSettings
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService, applied
from tests.support.redis_servers import free_port, own_server
from tests.support.telling_engine import telling, tells

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.redis_servers import Server

PASSWORD = "hush-hush"  # noqa: S105  of a server that lives for a test
CLOCK = SystemClock()


class Place:
    """A service beside a store: one engine as it should be, one without anything, one that is not there."""

    def __init__(self, service: RunningService, store: Server, good: EngineSimulator, flag: str) -> None:
        self.service = service
        self.store = store
        self.good = good
        self.flag = flag

    @property
    def store_url(self) -> str:
        """With the password."""
        return f"redis://:{PASSWORD}@127.0.0.1:{self.store.port}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The first engine has spoken, and tells of itself: the service reads its capacity there."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(own_server(tmp_path_factory.mktemp("store"), "--requirepass", PASSWORD))
        good = stack.enter_context(EngineSimulator())
        bare = stack.enter_context(EngineSimulator(replay_endpoint=None))
        address = stack.enter_context(telling(tells(block_size=4)))
        flag = f"good={good.endpoint},replay={good.replay_endpoint},model=m,address={address}"
        sources = [
            flag,
            f"10.0.0.2:8000={bare.endpoint},address=127.0.0.1:{free_port()}",
            f"gone=tcp://127.0.0.1:{free_port()},model=m",
        ]
        url = f"redis://:{PASSWORD}@127.0.0.1:{store.port}"
        service = stack.enter_context(
            RunningService(sources, redis__url=url, redis__partitions="2", events__engine_metrics_s="1")
        )
        good.wait_subscribers(1)
        good.publish(payload(stored([1], prompt(1)), ts=CLOCK.wall_us() / 1e6))
        service.wait_for(lambda: applied(service, "good", 0), "the first batch")
        service.wait_for(lambda: service.sources()["good"]["blocks_total"] == 500, "the engine's own word")
        yield Place(service, store, good, flag)


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """In this process: exit code and report. Short of breath, as nobody here is slow."""
    parsed = build_parser("1").parse_args(["doctor", "--json", "--listen-s", "0.2", *arguments])
    out: list[str] = []
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(_Lines(out)):
        patch.delenv("KVINDEXER_URL", raising=False)
        code = doctor.run(parsed, threading.Event(), "1")
    return code, json.loads("".join(out))


class _Lines:
    def __init__(self, out: list[str]) -> None:
        self._out = out

    def write(self, text: str) -> int:
        self._out.append(text)
        return len(text)

    def flush(self) -> None:
        """At once."""


def outcomes(report: dict[str, Any], subject: str = "") -> dict[str, str]:
    """Check → level of one subject's findings."""
    return {each["check"]: each["level"] for each in report["findings"] if each.get("subject", "") == subject}


def test_a_running_service_and_all_that_it_names(place: Place) -> None:
    """Each source by itself; the store's password is not told, so the store cannot be looked at."""
    code, report = run("--url", place.service.url)
    good, bare, gone = (outcomes(report, pod) for pod in ("good", "10.0.0.2:8000", "gone"))
    rest = outcomes(report)

    assert (1, True, place.service.url) == (code, report["complete"], report["service"])
    assert {
        "sources.model": "ok",
        "sources.replay": "ok",
        "sources.capacity": "ok",
        "sources.state": "ok",
        "endpoint.reachable": "ok",
        "endpoint.handshake": "ok",
        "endpoint.events": "unknown",
        "replay.answers": "ok",
        "replay.same_engine": "unknown",
        "replay.reach": "ok",
        "engine.reachable": "ok",
        "engine.prefix_caching": "ok",
        "engine.load": "ok",
        "engine.block_size": "ok",
        "engine.capacity": "ok",
        "engine.model": "ok",
        "engine.events": "ok",
    }.items() <= good.items()
    assert ("problem", "warning", "warning", "warning") == (
        bare["sources.model"],
        bare["sources.replay"],
        bare["sources.capacity"],
        bare["engine.reachable"],
    )
    assert ("problem", "warning") == (gone["endpoint.reachable"], gone["sources.state"])
    assert ("ok", "unknown", "ok", "ok") == (
        rest["service.access"],
        rest["store.reachable"],
        rest["partitions.owned"],
        rest["service.clock"],
    )
    assert "warning" == rest["partitions.standby"]
    assert PASSWORD not in json.dumps(report)


def test_every_finding_is_of_the_list(place: Place) -> None:
    """By an id that programs may keep, with what it means; the counts are those of the findings."""
    _, report = run("--url", place.service.url, "--no-probe")

    assert {each["check"] for each in report["findings"]} <= CHECKS.keys()
    assert all(each["level"] in CHECKS[each["check"]].levels for each in report["findings"])
    assert all(each["means"] for each in report["findings"] if each["level"] != "ok")
    assert len(report["findings"]) == sum(report["counts"].values())


def test_without_probes_nobody_is_connected_to(place: Place) -> None:
    """What the service tells by itself is told."""
    _, report = run("--url", place.service.url, "--no-probe")
    groups = {CHECKS[each["check"]].group for each in report["findings"]}

    assert {"service", "settings", "sources", "replicas", "unknowable"} == groups


def test_some_pods_alone(place: Place) -> None:
    """By any of their names, judged among all: what is well ends with 0; of one that is not there it is told."""
    code, report = run("--url", place.service.url, "--pods", "good")
    _, bare = run("--url", place.service.url, "--no-probe", "--pods", "10.0.0.2:8000")

    assert 0 == code
    assert {"good"} == {each["subject"] for each in report["findings"] if CHECKS[each["check"]].group == "endpoints"}
    assert "problem" == outcomes(bare, "10.0.0.2:8000")["sources.model"]
    assert {} == outcomes(bare, "good")
    with pytest.raises(CommandFailed, match="--pods: no source is called nobody"):
        run("--url", place.service.url, "--no-probe", "--pods", "nobody")


def test_a_store_that_is_named(place: Place) -> None:
    """From settings, without a service: all its checks, and no word of its password."""
    code, report = run("--redis-url", place.store_url, "--source", place.flag)
    rest = outcomes(report)

    assert None is report["service"]
    assert {
        "store.reachable": "ok",
        "store.fit": "ok",
        "store.memory": "ok",
        "store.evicted": "ok",
        "store.clock": "ok",
        "settings.valid": "ok",
        "settings.open_files": "ok",
        "store.layout": "problem",
    }.items() <= rest.items()
    (layout,) = (each for each in report["findings"] if each["check"] == "store.layout")
    assert "partitions is 2 there and 16 here" == layout["seen"]
    assert 1 == code
    assert PASSWORD not in json.dumps(report)
    assert "service.reachable" not in rest


def test_a_file_and_a_service_together(place: Place, tmp_path: Path) -> None:
    """Its settings count, and sources that only one of the two knows are looked at, too."""
    file = tmp_path / "kvindexer.yaml"
    file.write_text(
        f"redis: {{url: 'redis://:{PASSWORD}@127.0.0.1:{place.store.port}', partitions: 2}}\n"
        f"auth: {{tokens_file: '{tmp_path / 'none.yaml'}'}}\n"
        f"sources: ['only-here={place.good.endpoint},model=m']"
    )
    _, report = run("--config", str(file), "--url", place.service.url, "--pods", "only-here,good")

    assert "ok" == outcomes(report)["store.layout"]
    assert "problem" == outcomes(report)["settings.valid"]
    assert "ok" == outcomes(report, "only-here")["endpoint.handshake"]
    assert "ok" == outcomes(report, "good")["sources.state"]


def test_a_store_that_is_not_there() -> None:
    """Why, in the words that are said of an engine."""
    port = free_port()
    code, report = run("--redis-url", f"redis://127.0.0.1:{port}")

    assert 1 == code
    (store,) = [each for each in report["findings"] if each["check"] == "store.reachable"]
    assert f"standalone 127.0.0.1:{port}: connection refused" == store["seen"]


def test_a_store_of_another_policy(tmp_path: Path) -> None:
    """It is a problem, with the rule."""
    with own_server(tmp_path, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb") as server:
        code, report = run("--redis-url", server.url)

    (fit,) = (each for each in report["findings"] if each["check"] == "store.fit")
    assert (1, "problem") == (code, fit["level"])
    assert "maxmemory-policy is allkeys-lru" in fit["seen"]
    assert "unknown" == outcomes(report)["store.layout"]


def test_a_store_and_a_service_that_are_not_there() -> None:
    """3 where the service cannot be reached, 1 for all else."""
    code, report = run("--redis-url", f"redis://u:{PASSWORD}@127.0.0.1:{free_port()}")
    nobody, told = run("--url", f"http://127.0.0.1:{free_port()}", "--timeout", "2")

    assert (1, "problem") == (code, outcomes(report)["store.reachable"])
    assert PASSWORD not in json.dumps(report)
    assert (3, {"service.reachable": "problem"}) == (nobody, outcomes(told))


def test_a_token_that_may_not_read_all(place: Place, tmp_path: Path) -> None:
    """What was not read is named, and the rest is looked at."""
    tokens = tmp_path / "tokens.yaml"
    made = subprocess.run(
        [sys.executable, "-m", "indexer", "token", "--name", "router", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(made.stdout)
    tokens.write_text(json.dumps([told["entry"]]))
    tokens.chmod(0o600)
    with RunningService([place.flag], auth__tokens_file=str(tokens)) as service:
        _, report = run("--url", service.url, "--token", told["token"], "--no-probe")
        _, refused = run("--url", service.url, "--no-probe")

    assert "unknown" == outcomes(report, "/v1/config")["service.access"]
    assert "unknown" == outcomes(report)["settings.known"]
    assert "ok" == outcomes(report, "good")["sources.model"]
    assert "401" in next(each["seen"] for each in refused["findings"] if each.get("subject") == "/v1/sources")
    assert "sources.any" not in outcomes(refused)
    assert told["token"] not in json.dumps(report)


def test_what_a_person_reads(place: Place) -> None:
    """Groups, ids with what to do, a sum; no colours where nobody looks."""
    shown = subprocess.run(
        [sys.executable, "-m", "indexer", "doctor", "--url", place.service.url, "--listen-s", "0.1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (1, "") == (shown.returncode, shown.stderr)
    assert "\x1b" not in shown.stdout
    assert (
        "\nEvent endpoints\n  problem not so: event endpoints take connections (1 of 3) [endpoint.reachable]\n"
        "          gone: tcp://127.0.0.1:"
    ) in shown.stdout
    assert "          to do: give the source its model" not in shown.stdout
    assert "  ok      each source says its model (2 of 3)\n" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 250
    assert "problems, " in shown.stdout.splitlines()[-1]


def test_ctrl_c_shows_what_was_looked_at(place: Place) -> None:
    """It ends at once, with 130."""
    before = place.good.subscribers
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "indexer", "doctor", "--url", place.service.url, "--listen-s", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    place.good.wait_subscribers(before + 1)
    process.send_signal(signal.SIGINT)
    out, log = process.communicate(timeout=30)

    assert (130, "kvindexer: stopped: what was not looked at yet is missing\n") == (process.returncode, log)
    assert "Sources\n" in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--listen-s", "601"], "at most 600 seconds wanted, got 601"),
        (["--listen-s", "0"], "greater than 0 wanted, got 0"),
    ],
)
def test_what_is_typed_wrong(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told before anybody is asked."""
    with pytest.raises(SystemExit):
        build_parser("1").parse_args(["doctor", *arguments])

    assert why in capsys.readouterr().err


def test_a_source_that_is_none() -> None:
    """As serve refuses it."""
    with pytest.raises(BadSettings, match="tcp://HOST:PORT"):
        run("--source", "a=tcp://*:5557")
