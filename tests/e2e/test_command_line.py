"""`kvindexer serve` and its client commands as processes, with engines on real sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from api.demo.fleet import TraceFleet
from api.demo.trace import Trace, Truth, read_truth

DEADLINE_S = 30.0
COMMAND = [sys.executable, "-m", "indexer"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
ENVIRONMENT["KVINDEXER_SERVER__GRPC_PORT"] = "0"
PACKAGE = files("api.demo")
PODS = [f"10.0.0.{n}:8000" for n in (1, 2, 3)]


class Deployment:
    """Three engines and a service that listens to them."""

    def __init__(self) -> None:
        self.trace = Trace(PACKAGE / "demo.kvt.gz")
        self.truth: Truth = read_truth(PACKAGE / "demo.truth.gz")
        self.fleet = TraceFleet(self.trace.header, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
        self.fleet.start()
        self.service = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *(f"--source={flag}" for flag in self.fleet.source_flags())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self.service.stdout is not None
        self.banner = self.service.stdout.readline()
        found = re.search(r"http://[0-9.:]+", self.banner)
        assert found, self.banner
        self.url = found[0]

    def command(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
        """A client command against this service."""
        return run(*arguments, given=given, environment={"KVINDEXER_URL": self.url})

    def facts(self) -> dict[str, dict[str, object]]:
        """What `sources --json` says, a pod."""
        listed = json.loads(self.command("sources", "--json").stdout)
        return {source["pod"]: source for source in listed["sources"]}

    def play_to_first_probe(self) -> None:
        """Publish up to the first question that the engines were asked, and wait until all of it is indexed."""
        for message in islice(self.trace.messages(), self.truth.probes[0].n):
            self.fleet.publish(message)
        sent = [engine.sequence for engine in self.fleet.engines.values()]
        wait_until(
            lambda: sent == [facts["sequence"] for facts in self.facts().values() if facts["state"] == "live"],
            f"sequences {sent}",
        )

    def close(self) -> None:
        """All of it."""
        self.service.kill()
        self.service.communicate()
        self.fleet.close()


def run(
    *arguments: str, given: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=given,
        capture_output=True,
        check=False,
        env={**ENVIRONMENT, **(environment or {})},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when it holds; fail by its name at the deadline."""
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at, f"waited for {what}"
        time.sleep(0.05)


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    """Closed at the end."""
    made = Deployment()
    yield made
    made.close()


def test_lookup_says_what_the_engines_say(deployment: Deployment, tmp_path: Path) -> None:
    """For prompts of the first probe, in every form that token ids may come in."""
    deployment.play_to_first_probe()
    file = tmp_path / "ids"
    for probe in deployment.truth.probes[:3]:
        tokens = deployment.truth.prompts[probe.prompt].tokens
        file.write_bytes(struct.pack(f"<{len(tokens)}I", *tokens))
        for arguments, given in (
            (["--tokens", "-"], json.dumps(tokens).encode()),
            (["--tokens", "-"], " ".join(map(str, tokens)).encode()),
            (["--tokens", str(file), "--binary"], b""),
        ):
            done = deployment.command("lookup", "--json", "--model", "tiny-llama", *arguments, given=given)
            assert (0, "") == (done.returncode, done.stderr)
            entries = {entry["pod"]: entry for entry in json.loads(done.stdout)["pods"]}
            assert list(probe.cached) == [entries[pod]["reusable_tokens"] for pod in PODS]
            assert list(probe.chain) == [entries[pod]["matched_tokens"] for pod in PODS]


def test_lookup_prints_a_table(deployment: Deployment) -> None:
    """Whole names, best first, only the pods asked for."""
    deployment.play_to_first_probe()
    tokens = json.dumps(deployment.truth.prompts[0].tokens).encode()
    done = deployment.command("lookup", "--tokens", "-", "--pods", f"{PODS[1]},{PODS[0]}", given=tokens)
    head, titles, *rows = done.stdout.splitlines()

    assert 0 == done.returncode
    assert head.startswith(f"exact: {len(deployment.truth.prompts[0].tokens)} prompt tokens, any model")
    assert ["pod", "rank", "matched", "reusable", "score"] == titles.split()[:5]
    assert {PODS[0], PODS[1]} == {row.split()[0] for row in rows}


def test_a_refused_lookup_names_field_and_rule(deployment: Deployment) -> None:
    """Exit code 1 and one line."""
    done = deployment.command("lookup", "--tokens", "-", "--model", "x" * 10_000, given=b"1 2 3")

    assert 1 == done.returncode
    assert "" == done.stdout
    assert re.match(rf"kvindexer: {deployment.url} answered 422 \S+: model: ", done.stderr)
    assert 1 == done.stderr.count("\n")


def test_sources_come_and_go(deployment: Deployment) -> None:
    """Add a rank range, see it, cordon it, clear it, remove it."""
    added = deployment.command("sources", "add", "[fd00::1]:8000=tcp://127.0.0.1:9,ranks=0-1,model=m")
    assert ["[fd00::1]:8000 rank 0: created", "[fd00::1]:8000 rank 1: created"] == added.stdout.splitlines()
    assert "kvindexer: warning: [fd00::1]:8000 rank 0: no replay endpoint: " in added.stderr
    again = deployment.command("sources", "add", "[fd00::1]:8000=tcp://127.0.0.1:9,ranks=0-1,model=m")
    assert "[fd00::1]:8000 rank 0: same" == again.stdout.splitlines()[0]

    listed = deployment.command("sources", "list", "--model", "m").stdout
    assert 2 == sum(line.startswith("[fd00::1]:8000 ") for line in listed.splitlines())
    assert (
        "cordon done, sources reached: 1"
        in deployment.command("sources", "cordon", "[fd00::1]:8000", "--rank", "1").stdout
    )
    assert 1 == deployment.command("sources").stdout.count(", cordoned")
    assert "uncordon done, sources reached: 2" in deployment.command("sources", "uncordon", "[fd00::1]:8000").stdout
    assert 0 == deployment.command("sources").stdout.count("cordoned")
    assert "clear done, sources reached: 2" in deployment.command("sources", "clear", "[fd00::1]:8000").stdout
    assert "remove done, sources reached: 2" in deployment.command("sources", "remove", "[fd00::1]:8000").stdout
    assert PODS == list(deployment.facts())

    locked = deployment.command("sources", "remove", PODS[0])
    assert 1 == locked.returncode
    assert "409 source.conflict: origin: " in locked.stderr
    unknown = deployment.command("sources", "clear", "nobody")
    assert (1, True) == (unknown.returncode, "404 source.unknown" in unknown.stderr)


def test_partitions_in_memory_mode_are_none(deployment: Deployment) -> None:
    """Which is said, to people and to programs."""
    assert deployment.command("partitions").stdout.startswith("memory mode: the service has no store")
    refused = deployment.command("drain", "a")
    assert (1, "") == (refused.returncode, refused.stdout)
    assert "409 replica.conflict: there is no store that replicas share: nobody could take over" in refused.stderr
    assert {"mode": "memory", "trouble": None, "partitions": [], "replicas": []} == json.loads(
        deployment.command("partitions", "--json").stdout
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_cleanly(deployment: Deployment, number: signal.Signals) -> None:
    """Exit code 0; nothing on stderr but the log of what became of sources, that it stops, and that it has."""
    deployment.play_to_first_probe()
    deployment.service.send_signal(number)
    output, errors = deployment.service.communicate(timeout=DEADLINE_S)

    assert (0, "") == (deployment.service.returncode, output)
    of_sources = re.compile(r"\S+ \S+ (INFO|WARNING) kvindexer\.sources: ")
    told = [line.split(" ", 2)[2] for line in errors.splitlines() if not of_sources.match(line)]
    assert [
        "INFO kvindexer.serve: told to stop: draining, what is under way may end within 5 s",
        "INFO kvindexer.serve: stopped",
    ] == told
    assert deployment.banner.endswith("; sources: 3\n")


def test_the_log_tells_of_a_restart(deployment: Deployment) -> None:
    """With the reason and both generations, as the list of sources shows them."""
    deployment.play_to_first_probe()
    before = {pod: facts["generation"] for pod, facts in deployment.facts().items()}
    deployment.fleet.restart_all()
    first, *_ = deployment.trace.messages()
    pod = deployment.fleet.identities[first.pod].pod
    wait_until(lambda: all(engine.subscribers for engine in deployment.fleet.engines.values()), "subscribers")
    deployment.fleet.publish(first)
    wait_until(lambda: deployment.facts()[pod]["generation"] != before[pod], "a new generation")
    after = deployment.facts()[pod]["generation"]
    deployment.service.send_signal(signal.SIGTERM)
    _, log = deployment.service.communicate(timeout=DEADLINE_S)

    assert f"source {pod}: the engine restarted (" in log
    assert f"generation {after} after {before[pod]}" in log


def test_the_history_tells_of_a_restart(deployment: Deployment) -> None:
    """As a table and for programs, in pages that join; nobody's is exit code 1."""
    deployment.play_to_first_probe()
    deployment.fleet.restart_all()
    first, *_ = deployment.trace.messages()
    pod = deployment.fleet.identities[first.pod].pod
    wait_until(lambda: all(engine.subscribers for engine in deployment.fleet.engines.values()), "subscribers")
    deployment.fleet.publish(first)

    def told(*limit: str) -> list[dict[str, Any]]:
        answer = json.loads(deployment.command("sources", "history", pod, *limit, "--json").stdout)
        assert (pod, True) == (answer["pod"], answer["complete"])
        items: list[dict[str, Any]] = answer["items"]
        return items

    wait_until(lambda: ["joined", "restart"] == [item["what"] for item in told()][:2], "the restart in the history")
    _, restart, *before = told()
    assert "registered" == before[-1]["what"]
    assert restart["cause"] in {"sequence_went_back", "probe_differs", "reconnect_jump"}
    assert restart["numbers"]["generation"] == deployment.facts()[pod]["generation"]
    assert told()[:1] == told("--limit", "1")
    table = deployment.command("sources", "history", pod, "--rank", "0").stdout.splitlines()
    assert ["at", "what", "cause", "times", "numbers", "replica"] == table[0].split()
    assert [restart["at"], "restart", restart["cause"], "1"] == table[2].split()[:4]
    for wrong, code in ((["nobody"], 1), ([pod, "--limit", "0"], 2)):
        assert code == run("sources", "history", *wrong, "--url", deployment.url).returncode


def test_a_service_that_cannot_start_says_why(deployment: Deployment) -> None:
    """A taken port, a setting of a later version, an alias of two pods: one line each, exit code 2."""
    port = deployment.url.rpartition(":")[2]
    for arguments, environment, told in (
        (["--port", port], {}, f"server.port: {port} on 127.0.0.1 is in use"),
        ([], {"KVINDEXER_MODELS__TOKENIZER": "/none"}, "models.tokenizer: /none: No such file or directory"),
        (["--redis-url", "redis://u:hush@h:x"], {}, "redis.url: an address names hosts as host or host:port"),
        (["--roles", "lookup"], {}, "server.roles: without collect a replica knows only what is in the store"),
        (["--source", "a=tcp://h:1,alias=x", "--source", "b=tcp://h:2,alias=x"], {}, "sources: "),
        (["--source", "a"], {}, "--source: NAME=tcp://HOST:PORT"),
    ):
        done = run("serve", "--port", "0", *arguments, environment=environment)
        assert (2, "") == (done.returncode, done.stdout)
        assert done.stderr.startswith(f"kvindexer: {told}")
        assert 1 == done.stderr.count("\n")


def test_an_address_to_bind_that_is_not_here_is_told_before_anything_listens() -> None:
    """Nobody reads that it listens and then that it does not."""
    done = run("serve", "--port", "0", "--source-bind", "tcp://192.0.2.1:5557")

    assert (2, "") == (done.returncode, done.stdout)
    assert "kvindexer: source-bind: cannot bind tcp://192.0.2.1:5557: " in done.stderr.splitlines()[-1]


def test_an_open_port_without_access_control_is_a_warning() -> None:
    """Before the service starts, and when the settings are checked; the usual addresses are none."""
    open_doors = ("--host", "0.0.0.0", "--source-bind", "tcp://*:5557")  # noqa: S104  that is what is warned of
    checked = run("config", "--check", *open_doors)

    assert ["server.host 0.0.0.0 is reached", "events.source_bind tcp://*:5557 is reached"] == [
        line.removeprefix("kvindexer: warning: ").partition(" from")[0] for line in checked.stderr.splitlines()
    ]
    for host in ("127.0.0.2", "::1", "localhost"):
        assert "" == run("config", "--check", "--host", host, "--source-bind", "tcp://127.0.0.1:5557").stderr


def test_config_warns_of_what_serve_would_refuse() -> None:
    """It prints, and `--check` refuses."""
    named = {"KVINDEXER_MODELS__TOKENIZER": "/none"}
    printed, checked = (run("config", *flags, environment=named) for flags in ((), ("--check",)))

    assert (0, 2) == (printed.returncode, checked.returncode)
    assert "tokenizer: /none" in printed.stdout
    assert printed.stderr.startswith("kvindexer: warning: serve would refuse models.tokenizer: /none: No such file")


def test_a_misspelt_flag_gets_the_nearest_one() -> None:
    """With the usage of its command."""
    done = run("serve", "--prot", "9000")

    assert 2 == done.returncode
    assert "unrecognized arguments: --prot 9000 (did you mean --port?)" in done.stderr


def test_client_commands_without_a_service() -> None:
    """One line on stderr, exit code 1."""
    for arguments in (["sources"], ["partitions"], ["drain", "a"], ["lookup", "--tokens", "-"]):
        done = run(*arguments, "--url", "http://127.0.0.1:9", given=b"1")
        assert (1, "") == (done.returncode, done.stdout)
        assert "kvindexer: http://127.0.0.1:9 cannot be reached: connection refused\n" == done.stderr


def test_client_commands_at_a_service_that_never_answers() -> None:
    """Each waits as long as it is told to, and the flag may stand before an action or after it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes connections, nobody reads
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for arguments in (
            ["sources"],
            ["sources", "clear", "a"],
            ["partitions"],
            ["drain", "a"],
            ["lookup", "--tokens", "-"],
        ):
            done = run(*arguments, "--timeout", "0.2", "--url", url, given=b"1")
            assert (1, "") == (done.returncode, done.stdout)
            assert f"kvindexer: {url} cannot be reached: no answer in time (0.2 s)\n" == done.stderr
        compared = run("compare", url, url, "--prompts", "-", "--timeout", "0.2", given=b"[1]")
        assert (1, f"kvindexer: {url} cannot be reached: no answer in time (0.2 s)\n") == (
            compared.returncode,
            compared.stderr,
        )
        before = run("sources", "--timeout", "0.2", "clear", "a", "--url", url)
        assert "(0.2 s)" in before.stderr


def test_what_stands_in_the_environment_is_blamed_by_its_name() -> None:
    """Nobody typed the flag."""
    for environment, arguments, told in (
        ({"KVINDEXER_URL": "foo"}, ["sources"], "KVINDEXER_URL: http://HOST:PORT"),
        ({"KVINDEXER_URL": "foo"}, ["sources", "clear", "a"], "KVINDEXER_URL: http://HOST:PORT"),
        ({"KVINDEXER_URL": "foo"}, ["sources", "--url", "bar"], "--url: http://HOST:PORT"),
        ({"KVINDEXER_TOKEN": "a\tb"}, ["partitions"], "KVINDEXER_TOKEN: a token is printable ASCII"),
        ({"KVINDEXER_TOKEN": "a\tb"}, ["compare", "http://h", "http://h", "--prompts", "demo"], "KVINDEXER_TOKEN: "),
        ({}, ["compare", "http://h", "foo", "--prompts", "demo"], "URL_B: http://HOST:PORT"),
    ):
        done = run(*arguments, environment=environment)
        assert (2, "") == (done.returncode, done.stdout)
        assert done.stderr.startswith(f"kvindexer: {told}")
        assert 1 == done.stderr.count("\n")


def test_config_prints_what_all_layers_come_to(tmp_path: Path) -> None:
    """As YAML that can be read again, as JSON, or only whether it is good."""
    file = tmp_path / "kvindexer.yaml"
    file.write_text("server: {port: 1, host: '::1'}\nredis: {url: 'redis://:hush@h'}\n")
    environment = {"KVINDEXER_SERVER__PORT": "2", "KVINDEXER_EVENTS__RCVHWM": "7"}
    shown = json.loads(run("config", "--config", str(file), "--port", "3", "--json", environment=environment).stdout)
    assert (3, "::1", 7) == (shown["server"]["port"], shown["server"]["host"], shown["events"]["rcvhwm"])
    assert "redis://:***@h" == shown["redis"]["url"]

    good = run("config", "--check", "--source", "a=tcp://h:1")
    assert (0, "settings are good: 1 source\n") == (good.returncode, good.stdout)
    looks = run("config", "--check", environment={"KVINDEXER_DISCOVERY__KUBERNETES__SELECTOR": "app=vllm"})
    assert "settings are good: 0 sources, and those that kubernetes tells of\n" == looks.stdout
    bad = run("config", "--check", "--config", str(file), "--roles", "collect,epp")
    assert (2, "") == (bad.returncode, bad.stdout)
    assert bad.stderr.startswith("kvindexer: server.roles: ")

    file.write_text(run("config").stdout)
    assert run("config").stdout == run("config", "--config", str(file)).stdout


def test_help_and_version() -> None:
    """Each subcommand teaches by an example; unknown flags are errors with the usage of that subcommand."""
    assert re.match(r"kvindexer \d", run("--version").stdout)
    assert "--source 10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama" in run("serve", "--help").stdout
    for command in ("replay", "lookup", "sources", "partitions", "drain", "redis reset", "token"):
        assert f"kvindexer {command} " in run(*command.split(), "--help").stdout.partition("examples:")[2]
    for arguments in (
        ["serve", "--grpc-port", "x"],
        ["serve", "--epp-port", "x"],
        ["serve", "--sourc", "x"],
        ["x"],
        [],
    ):
        done = run(*arguments)
        assert (2, "") == (done.returncode, done.stdout)
        assert "error: " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    """For a command that does not come to its end after the first."""
    program = (
        "import threading\nfrom indexer.__main__ import StopOnSignal\n"
        "with StopOnSignal() as stop:\n"
        "    print('ready', flush=True)\n    stop.wait()\n"
        "    print('told', flush=True)\n    threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        process.send_signal(number)
        assert "told\n" == process.stdout.readline()
        process.send_signal(number)
        assert -number == process.wait(DEADLINE_S)


def test_a_variable_that_nobody_reads_is_told_at_the_start() -> None:
    """It stops nothing; what Kubernetes sets for a service of our name is not even told."""
    done = run("config", "--check", environment={"KVINDEXER_FOO": "1", "KVINDEXER_PORT": "tcp://10.0.0.1:8080"})

    assert 0 == done.returncode
    assert re.fullmatch(r"kvindexer: warning: KVINDEXER_FOO .*\n", done.stderr)


def test_the_packaged_recording_has_a_name() -> None:
    """For those who have no source tree: `replay demo`."""
    free = ("--endpoint-base", "tcp://127.0.0.1:0", "--replay-base", "tcp://127.0.0.1:0")
    done = run("replay", "demo", *free, "--speed", "max", "--hold", "0")

    assert 0 == done.returncode
    assert re.match(r"# demo: \d+ messages of 3 engines", done.stdout)


def test_replay_says_what_it_waits_for() -> None:
    """Rather than nothing, until somebody subscribes."""
    free = ("--endpoint-base", "tcp://127.0.0.1:0", "--replay-base", "tcp://127.0.0.1:0")
    with subprocess.Popen(
        [*COMMAND, "replay", "demo", *free, "--wait-subscribers"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stderr is not None
        assert "waiting for subscribers: 3 of 3 engines have none\n" == process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(DEADLINE_S)
