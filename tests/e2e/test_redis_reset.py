"""`kvindexer redis reset` as a process: what it takes away, whom it asks, and what stops it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from indexer.sharding.members import Member
from indexer.store.layout import PartitionKeys, deployment_key, replicas_key, tags
from indexer.store.members import pack_member
from tests.support.redis_servers import Server, own_server

if TYPE_CHECKING:
    from collections.abc import Iterator

README = Path(__file__).parents[2] / "README.md"
DEADLINE_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
ENVIRONMENT["KVINDEXER_SERVER__GRPC_PORT"] = "0"
COMMAND = [sys.executable, "-m", "indexer", "redis", "reset"]
KEYS = 40


def reset(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """To its end, with nobody to ask."""
    return subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**ENVIRONMENT, **(environment or {})},
        check=False,
    )


@contextlib.contextmanager
def filled(folder: Path, *options: str, keys: int = KEYS) -> Iterator[tuple[Server, Any]]:
    """A server with so many keys of namespace kvi, and one of another; and a client to look with."""
    with own_server(folder, *options) as server, server.client() as look:
        look.hset(deployment_key("kvi"), "partitions", 16)
        log = PartitionKeys("kvi", tags(16)[3]).log
        look.mset({log + b"%d" % number: b"x" for number in range(keys - 1)})
        look.set(b"kvi2:1:a", b"x")
        yield server, look


def test_all_keys_of_the_namespace_go(tmp_path: Path) -> None:
    """It says how many, and where; no word of the password."""
    with filled(tmp_path) as (server, look):
        look.config_set("requirepass", "hush")
        done = reset("--redis-url", f"redis://:hush@127.0.0.1:{server.port}", "--yes")
        assert [b"kvi2:1:a"] == look.keys()

    assert (0, "") == (done.returncode, done.stderr)
    assert f"removed {KEYS} keys of namespace kvi at standalone 127.0.0.1:{server.port}\n" == done.stdout


def test_the_store_as_serve_is_told_it(tmp_path: Path) -> None:
    """By file, environment and flags, each before the one before it; for programs as JSON."""
    with filled(tmp_path) as (server, look):
        file = tmp_path / "kvindexer.yaml"
        file.write_text(
            "redis: {url: 'redis://127.0.0.1:9', namespace: kvi2}\nsources: [{pod: a, endpoint: 'tcp://h:1'}]"
        )
        environment = {"KVINDEXER_REDIS__URL": server.url}
        other = reset("--config", str(file), "--yes", "--json", environment=environment)
        assert {"namespace": "kvi2", "removed": 1, "complete": True} == json.loads(other.stdout)
        done = reset("--config", str(file), "--namespace", "kvi", "--yes", "--json", environment=environment)
        assert {"namespace": "kvi", "removed": KEYS, "complete": True} == json.loads(done.stdout)
        again = reset("--redis-url", server.url, "--yes")
        assert (0, "removed 0 keys") == (again.returncode, again.stdout[:14])
        assert [] == look.keys()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--yes"], "redis.url: say where the store is: --redis-url, --config or KVINDEXER_REDIS__URL"),
        (["--redis-url", "redis://u:hush@127.0.0.1:9"], "--yes is needed where nobody can be asked"),
        (["--redis-url", "http://u:hush@h", "--yes"], "redis.url: "),
        (["--redis-url", "redis://h", "--namespace", "a:b", "--yes"], "redis.namespace: "),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_asked(arguments: list[str], why: str) -> None:
    """Exit code 2, one line."""
    done = reset(*arguments)

    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"kvindexer: {why}")
    assert 1 == len(done.stderr.splitlines())
    assert "hush" not in done.stderr


def test_a_store_that_is_not_there() -> None:
    """Exit code 1, where it was looked for, and no password."""
    done = reset("--redis-url", "redis://u:hush@127.0.0.1:9", "--yes")

    assert (1, "") == (done.returncode, done.stdout)
    assert "kvindexer: standalone 127.0.0.1:9: the store: no connection, or it broke\n" == done.stderr


def test_it_is_refused_while_replicas_run(tmp_path: Path) -> None:
    """By name: who beat lately, and who holds a lease; not who is silent. With --force it is done all the same."""
    with filled(tmp_path) as (server, look):
        now_ms = int(look.time()[0]) * 1000
        beats = {b"b:a-8080": b"%d|x" % now_ms, b"b:gone": b"%d|x" % (now_ms - 60_000)}
        beats[b"b:going"] = b"%d|%b" % (now_ms, pack_member(Member(name="going", process="p", leaving=True)))
        look.hset(replicas_key("kvi"), mapping=beats)
        look.set(PartitionKeys("kvi", tags(16)[3]).owner, b"7:b-8080:n1", px=600_000)
        refused = reset("--redis-url", server.url, "--yes")
        assert 1 == refused.returncode
        assert re.search(
            r"namespace kvi run: a-8080 \(seen [0-9.]+ s ago\), b-8080 \(holds a lease\); stop", refused.stderr
        )
        assert KEYS + 3 == len(look.keys())
        assert 0 == reset("--redis-url", server.url, "--yes", "--force").returncode
        assert [b"kvi2:1:a"] == look.keys()


def test_the_rights_that_the_readme_names_are_enough(tmp_path: Path) -> None:
    """Those of the service's user, and `+scan`; without it that is told."""
    text = README.read_text()
    rights = re.search(r"the user needs no more than `(.*?)` on `~<namespace>:\*`", text, re.DOTALL)
    assert rights
    assert "The user of `redis reset` needs `+scan`, too." in text
    with filled(tmp_path) as (server, look):
        look.execute_command("ACL", "SETUSER", "u", "on", ">hush", "~kvi:*", *rights[1].split())
        url = f"redis://u:hush@127.0.0.1:{server.port}"
        denied = reset("--redis-url", url, "--yes")
        assert (1, True) == (denied.returncode, "or lack a right" in denied.stderr)
        look.execute_command("ACL", "SETUSER", "u", "+scan")
        assert 0 == reset("--redis-url", url, "--yes").returncode
        assert [b"kvi2:1:a"] == look.keys()


class Asked:
    """The command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._terminal, its = pty.openpty()
        self.process = subprocess.Popen([*COMMAND, *arguments], stdin=its, stdout=its, stderr=its, env=ENVIRONMENT)
        os.close(its)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Until it is on the screen."""
        ends_at = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            readable, _, _ = select.select([self._terminal], [], [], ends_at - time.monotonic())
            assert readable, self.shown
            self.shown += os.read(self._terminal, 4096).decode()

    def type(self, text: str) -> None:
        """What a person types."""
        os.write(self._terminal, text.encode())

    def end(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            os.close(self._terminal)


@pytest.mark.parametrize(("answer", "left", "code"), [("y\n", 1, 0), ("n\n", KEYS + 1, 1), ("\n", KEYS + 1, 1)])
def test_on_a_terminal_it_asks(answer: str, left: int, code: int, tmp_path: Path) -> None:
    """With the number of keys and the place; only yes is yes."""
    with filled(tmp_path) as (server, look):
        asked = Asked("--redis-url", server.url)
        asked.wait_for(f"removes all {KEYS} keys of namespace kvi at standalone 127.0.0.1:{server.port}: ")
        asked.wait_for("[y/N] ")
        asked.type(answer)
        asked.wait_for(f"removed {KEYS} keys of" if code == 0 else "kvindexer: nothing was removed")
        assert code == asked.end()
        assert left == len(look.keys())


def test_ctrl_c_leaves_the_rest_and_says_so(tmp_path: Path) -> None:
    """Told at a moment when the store does not answer; run again it removes the rest."""
    with filled(tmp_path, keys=5_000) as (server, look):
        asked = Asked("--redis-url", server.url)
        asked.wait_for("[y/N] ")
        server.freeze()
        asked.type("y\n")
        asked.wait_for("0 of 5,000 keys")
        asked.process.send_signal(signal.SIGINT)
        asked.wait_for("kvindexer: stopped: 0 keys are gone, run it again to remove the rest")
        assert 130 == asked.end()
        server.thaw()
        assert 5_001 == len(look.keys())
        assert 0 == reset("--redis-url", server.url, "--yes").returncode
        assert [b"kvi2:1:a"] == look.keys()


def test_a_replica_that_differs_is_told_the_command(tmp_path: Path) -> None:
    """It does not start, with exit code 2; after the reset it does not complain of that any more."""
    with filled(tmp_path) as (server, look):
        words = [sys.executable, "-m", "indexer", "serve", "--port", "0", "--redis-url", server.url]
        environment = {**ENVIRONMENT, "KVINDEXER_REDIS__PARTITIONS": "8"}
        refused = subprocess.run(
            words, capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=False
        )
        assert (2, "") == (refused.returncode, refused.stdout)
        assert "(partitions is 16 for the replicas of this namespace, and 8 here; to begin anew, " in refused.stderr
        command = re.search(r"kvindexer (redis reset --namespace kvi)\)", refused.stderr)
        assert command
        assert 0 == reset(*command[1].split()[2:], "--redis-url", server.url, "--yes").returncode
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("kvindexer listens on ")
            assert b"8" == look.hget(deployment_key("kvi"), "partitions")
        finally:
            process.kill()
            process.communicate()


def test_redis_alone_shows_what_there_is() -> None:
    """As its --help."""
    words = [sys.executable, "-m", "indexer", "redis"]
    alone = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, env=ENVIRONMENT, check=False)
    helped = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    assert (0, helped.stdout, "") == (alone.returncode, alone.stdout, alone.stderr)
    assert "kvindexer redis reset --redis-url" in alone.stdout
