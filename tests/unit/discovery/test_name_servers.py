"""Questions to name servers on real sockets: what is believed, what is asked again, and what says nothing."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from indexer.discovery import name_servers
from indexer.discovery.dns_messages import Kind
from indexer.discovery.name_servers import NameServers, NothingKnown, Rules, read_rules, system_rules
from tests.support.name_server import NameServer, name_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from indexer.discovery.dns_messages import Answered

NAME = "vllm.ns.svc"
WHOLE = "vllm.ns.svc.cluster.local"


@pytest.fixture
def server() -> Iterator[NameServer]:
    """One that knows a headless service."""
    with name_server() as running:
        running.put(WHOLE, "A", "10.0.0.1", "10.0.0.2")
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is silent is given up soon."""
    monkeypatch.setattr(name_servers, "TRY_S", 0.1)


def _ask(*servers: tuple[str, int], name: str = WHOLE, kind: Kind = Kind.A, rules: Rules | None = None) -> Answered:
    asked = NameServers((rules or Rules(()))._replace(servers=servers), random.Random(1))
    return asyncio.run(asked.ask(name, kind))


def _at(server: NameServer) -> tuple[str, int]:
    return "127.0.0.1", server.port


def _reason(*servers: tuple[str, int], name: str = WHOLE, rules: Rules | None = None) -> str:
    with pytest.raises(NothingKnown) as caught:
        _ask(*servers, name=name, rules=rules)
    return caught.value.reason


def test_an_answer(server: NameServer) -> None:
    """Over UDP, in one question."""
    assert {"10.0.0.1", "10.0.0.2"} == _ask(_at(server)).addresses
    assert [("udp", WHOLE, "A")] == server.asked


def test_an_answer_that_is_cut_is_asked_for_over_tcp(server: NameServer) -> None:
    """Half an answer would be an engine that is missing."""
    many = {f"10.1.{i // 256}.{i % 256}" for i in range(1_000)}
    server.put(WHOLE, "A", *many)
    assert many == _ask(_at(server)).addresses
    server.cut.add("A")
    server.put(WHOLE, "A", "10.0.0.1")
    assert {"10.0.0.1"} == _ask(_at(server)).addresses

    assert ["udp", "tcp", "udp", "tcp"] == [transport for transport, _, _ in server.asked]


def test_no_such_name_and_no_such_record_are_answers(server: NameServer) -> None:
    """There is nothing, and that is known."""
    assert frozenset() == _ask(_at(server), name="other.example").addresses
    answered = _ask(_at(server), kind=Kind.AAAA)
    assert (0, frozenset()) == (answered.code, answered.addresses)


@pytest.mark.parametrize(
    ("code", "reason"),
    [("SERVFAIL", "server_failure"), ("REFUSED", "refused"), ("NOTIMP", "not_implemented"), ("NOTAUTH", "other_code")],
)
def test_failures_say_nothing(server: NameServer, code: str, reason: str) -> None:
    """Whatever the server's reason is."""
    server.codes[""] = code

    assert reason == _reason(_at(server))


@pytest.mark.usefixtures("impatient")
def test_silence_and_garbage_say_nothing(server: NameServer) -> None:
    """Each server is asked twice."""
    server.silent.add("")
    assert "no_answer" == _reason(_at(server))
    assert 2 == len(server.asked)
    server.silent.clear()
    server.garbage.add("")

    assert "bad_message" == _reason(_at(server))


def test_nobody_listens_there(server: NameServer) -> None:
    """And the whole answer of a cut one cannot be had."""
    with name_server() as other:
        gone = _at(other)

    assert "not_reached" == _reason(gone)
    assert {"10.0.0.1", "10.0.0.2"} == _ask(gone, _at(server)).addresses


@pytest.mark.usefixtures("impatient")
def test_another_server_is_asked_where_one_fails(server: NameServer) -> None:
    """One that failed, refused or was silent."""
    for fault in ("SERVFAIL", ""):
        with name_server() as first:
            if fault:
                first.codes[""] = fault
            else:
                first.silent.add("")
            assert {"10.0.0.1", "10.0.0.2"} == _ask(_at(first), _at(server)).addresses


def test_names_are_looked_for_as_the_system_does(server: NameServer) -> None:
    """With fewer dots than `ndots` the search list comes first; with a dot at the end it does not count."""
    rules = Rules((), ("ns.svc.cluster.local", "svc.cluster.local", "cluster.local"), ndots=5)

    assert {"10.0.0.1", "10.0.0.2"} == _ask(_at(server), name=NAME, rules=rules).addresses
    assert [f"{NAME}.ns.svc.cluster.local", f"{NAME}.svc.cluster.local", WHOLE] == [name for _, name, _ in server.asked]
    assert [NAME, f"{NAME}.a"] == Rules((), ("a",), ndots=2).names(NAME)
    assert [f"{NAME}."] == Rules((), ("a",), ndots=5).names(f"{NAME}.")
    assert frozenset() == _ask(_at(server), name=f"{NAME}.", rules=rules).addresses


def test_a_failure_before_the_right_name_says_nothing(server: NameServer) -> None:
    """What that server did not say may have been the answer."""
    server.codes[""] = "SERVFAIL"

    assert "server_failure" == _reason(_at(server), name=NAME, rules=Rules((), ("cluster.local",), ndots=5))


def test_a_resolv_conf(tmp_path: Path) -> None:
    """As Kubernetes writes it; what is not understood is left alone; servers of the settings count instead."""
    path = tmp_path / "resolv.conf"
    path.write_text(
        "# made\nnameserver 10.96.0.10\nnameserver fd00::a\nnameserver nonsense\nnameserver\n"
        "search ns.svc.cluster.local svc.cluster.local. cluster.local\noptions ndots:5 timeout:x edns0\n; end\n"
    )
    search = ("ns.svc.cluster.local", "svc.cluster.local", "cluster.local")

    assert Rules((("10.96.0.10", 53), ("fd00::a", 53)), search, 5) == system_rules(path=path)
    assert Rules((("10.0.0.1", 5353),), search, 5) == system_rules([("10.0.0.1", 5353)], path)
    assert Rules((("127.0.0.1", 53),)) == system_rules(path=tmp_path / "none")
    assert Rules((), (), 1) == read_rules("options ndots:-1 ndots:y\n\x00\nsearch\n")
