"""What a name's answers come to over time, as transcripts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from indexer.discovery.dns_messages import Kind, Target
from indexer.discovery.event_endpoints import Endpoints
from indexer.discovery.names import ADDRESSES_MAX, KNOWN_MAX, MISSING, NameMemory, picture
from indexer.model import SourceId
from indexer.settings.discovery import DnsName

FORGET_S = 60.0
PLAIN = DnsName(family="ipv4")


def _memory(entry: DnsName = PLAIN, name: str = "vllm.ns.svc") -> NameMemory:
    return NameMemory(name, entry, forget_s=FORGET_S)


def _take(memory: NameMemory, now: float, *addresses: str, kind: Kind = Kind.A, host: str = "vllm.ns.svc") -> None:
    memory.take_addresses(host, kind, frozenset(addresses), now)


def _ready(*memories: NameMemory, **told: object) -> dict[str, bool]:
    return {str(key): found.ready for key, found in picture(memories, told).found.items()}  # type: ignore[arg-type]


def test_each_address_is_a_source() -> None:
    """Called by its HTTP address, with all that the settings say."""
    entry = DnsName(
        port=9000, events_port=7000, replay_port=7100, ranks=2, model="m", role="decode", tenant="t", labels={"a": "b"}
    )
    memory = _memory(entry)
    _take(memory, 0.0, "10.0.0.1")
    assert not memory.is_whole
    _take(memory, 0.0, "fd00::1", kind=Kind.AAAA)
    assert memory.is_whole

    found = picture([memory], {}).found

    assert [("10.0.0.1:9000", 0), ("10.0.0.1:9000", 1), ("[fd00::1]:9000", 0), ("[fd00::1]:9000", 1)] == [*found]
    second = found[SourceId("[fd00::1]:9000", 1)]
    described = second.descriptor
    assert (True, "") == (second.ready, second.life)
    assert ("tcp://[fd00::1]:7001", "tcp://[fd00::1]:7101") == (described.endpoint, described.replay_endpoint)
    assert ("m", "decode", "t", {"a": "b"}) == (described.model, described.role, described.tenant, described.labels)
    assert ("discovery", "[fd00::1]:9000", ()) == (described.origin, described.address, described.aliases)


def test_who_is_missing_is_not_ready_and_then_gone() -> None:
    """Not ready at once, gone once an answer lacks it `forget_s` later, as it was if it comes back before."""
    memory = _memory()
    _take(memory, 0.0, "10.0.0.1", "10.0.0.2")
    before = picture([memory], {})
    _take(memory, 10.0, "10.0.0.2")
    assert {"10.0.0.1:8000": False, "10.0.0.2:8000": True} == _ready(memory)
    assert MISSING == picture([memory], {}).found[SourceId("10.0.0.1:8000", 0)].why
    _take(memory, 69.0, "10.0.0.2")
    assert {"10.0.0.1:8000": False, "10.0.0.2:8000": True} == _ready(memory)

    _take(memory, 69.5, "10.0.0.2", "10.0.0.1")
    assert before == picture([memory], {})
    _take(memory, 70.0)
    _take(memory, 130.0)
    assert {} == _ready(memory)


def test_nothing_is_forgotten_while_nobody_answers() -> None:
    """Time alone proves nothing: only an answer that lacks it does."""
    memory = _memory()
    _take(memory, 0.0, "10.0.0.1")
    _take(memory, 1.0)
    memory.failed = "no answer"

    shown = picture([memory], {})

    assert {"10.0.0.1:8000": False} == _ready(memory)
    assert "what was known stays" in shown.remarks["vllm.ns.svc"]


def test_families_are_believed_each_for_itself() -> None:
    """An answer of the one says nothing of the other."""
    memory = _memory(DnsName())
    _take(memory, 0.0, "10.0.0.1")
    _take(memory, 0.0, "fd00::1", kind=Kind.AAAA)
    _take(memory, 1.0)

    assert {"10.0.0.1:8000": False, "[fd00::1]:8000": True} == _ready(memory)


def test_service_records() -> None:
    """The record's port is that of the events; the target is a further name of the pod."""
    memory = _memory(DnsName(kind="srv", family="ipv4", ranks=2), "_kv._tcp.vllm")
    assert not memory.is_whole
    memory.take_targets(frozenset({Target("vllm-0.vllm", 7000), Target("vllm-1.vllm", 7100)}), 0.0)
    assert ["vllm-0.vllm", "vllm-1.vllm"] == memory.hosts
    _take(memory, 0.0, "10.0.0.1", host="vllm-0.vllm")
    assert not memory.is_whole
    _take(memory, 0.0, "10.0.0.2", host="vllm-1.vllm")
    assert memory.is_whole

    found = picture([memory], {}).found

    assert ["tcp://10.0.0.1:7000", "tcp://10.0.0.1:7001", "tcp://10.0.0.2:7100", "tcp://10.0.0.2:7101"] == [
        each.descriptor.endpoint for each in found.values()
    ]
    aliases = found[SourceId("10.0.0.2:8000", 1)].descriptor.aliases
    assert ("vllm-1.vllm", "vllm-1.vllm:8000") == aliases


def test_a_target_that_is_gone_is_missing() -> None:
    """As an address is, and forgotten as one, though nobody asks for it any more."""
    memory = _memory(DnsName(kind="srv", family="ipv4"), "_kv._tcp.vllm")
    memory.take_targets(frozenset({Target("a", 1), Target("b", 2)}), 0.0)
    _take(memory, 0.0, "10.0.0.1", host="a")
    _take(memory, 0.0, "10.0.0.2", host="b")
    memory.take_targets(frozenset({Target("b", 2)}), 5.0)
    assert {"10.0.0.1:8000": False, "10.0.0.2:8000": True} == _ready(memory)
    memory.take_targets(frozenset({Target("b", 2)}), 65.0)

    assert {"10.0.0.2:8000": True} == _ready(memory)


def test_a_name_that_moves_belongs_to_one_pod() -> None:
    """The pod came back under another address: the former one cannot keep its name, and is gone."""
    memory = _memory(DnsName(kind="srv", family="ipv4"), "_kv._tcp.vllm")
    memory.take_targets(frozenset({Target("vllm-0", 1)}), 0.0)
    _take(memory, 0.0, "10.0.0.1", host="vllm-0")
    _take(memory, 5.0, host="vllm-0")
    assert {"10.0.0.1:8000": False} == _ready(memory)
    _take(memory, 9.0, "10.0.0.7", host="vllm-0")

    found = picture([memory], {}).found

    assert [("10.0.0.7:8000", ("vllm-0", "vllm-0:8000"))] == [(k.pod, f.descriptor.aliases) for k, f in found.items()]


def test_a_target_with_both_families_is_one_engine() -> None:
    """Called by the shorter address; one of several addresses has no name of its own."""
    memory = _memory(DnsName(kind="srv"), "_kv._tcp.vllm")
    memory.take_targets(frozenset({Target("vllm-0", 1)}), 0.0)
    _take(memory, 0.0, "10.0.0.1", host="vllm-0")
    _take(memory, 0.0, "fd00::1", host="vllm-0", kind=Kind.AAAA)
    assert {"10.0.0.1:8000": True} == _ready(memory)
    _take(memory, 0.0, "10.0.0.1", "10.0.0.2", host="vllm-0")

    found = picture([memory], {}).found

    assert [(), ()] == [each.descriptor.aliases for each in found.values()]


def test_one_engine_under_two_names() -> None:
    """The first name counts, and who is there before who is missing."""
    first, second = _memory(DnsName(family="ipv4", model="a"), "a"), _memory(DnsName(family="ipv4", model="b"), "b")
    _take(first, 0.0, "10.0.0.1", host="a")
    _take(second, 0.0, "10.0.0.1", host="b")
    shown = picture([first, second], {})
    assert ["a"] == [each.descriptor.model for each in shown.found.values()]
    assert "under a and under b" in shown.remarks["10.0.0.1:8000"]

    _take(first, 1.0, host="a")
    shown = picture([first, second], {})

    assert [("b", True)] == [(each.descriptor.model, each.ready) for each in shown.found.values()]


def test_engines_that_tell_their_ports_themselves() -> None:
    """None is a source before it told; then by what it told."""
    memory = _memory(DnsName(family="ipv4", events_port=0))
    _take(memory, 0.0, "10.0.0.1")
    pod = "10.0.0.1:8000"
    assert ({}, {}, {pod: (True, "")}) == picture([memory], {})
    assert "no answer" in picture([memory], {pod: "no answer in time"}).remarks[pod]
    assert {} == _ready(memory)

    told = {pod: {1: Endpoints("tcp://10.0.0.1:4001", None), 0: Endpoints("tcp://10.0.0.1:4000", "tcp://10.0.0.1:1")}}
    found, _, pending = picture([memory], told)

    assert {} == pending
    assert {"tcp://10.0.0.1:4000", "tcp://10.0.0.1:4001"} == {each.descriptor.endpoint for each in found.values()}


def test_bounds() -> None:
    """Of too many addresses those that were known stay, whatever order they come in; ports end at 65535."""
    memory = _memory()
    many = [f"10.1.{i // 256}.{i % 256}" for i in range(ADDRESSES_MAX + 50)]
    known = many[-ADDRESSES_MAX:]
    _take(memory, 0.0, *known)
    before = picture([memory], {}).found
    _take(memory, 1.0, *many)
    shown = picture([memory], {})
    assert before == shown.found
    assert "more than" in shown.remarks["vllm.ns.svc"]

    beyond = _memory(DnsName(kind="srv", family="ipv4", ranks=2), "_kv._tcp.vllm")
    beyond.take_targets(frozenset({Target("a", 65_535)}), 0.0)
    _take(beyond, 0.0, "10.0.0.1", host="a")
    assert "beyond 65535" in picture([beyond], {}).remarks["10.0.0.1:8000"]


def test_a_name_that_is_answered_otherwise_each_time() -> None:
    """What is remembered of it is bounded; who is missing for longest is forgotten first."""
    memory = _memory()
    for turn in range(10):
        _take(memory, float(turn), *(f"10.{turn}.{i // 256}.{i % 256}" for i in range(ADDRESSES_MAX)))

    seen = list(memory.seen())
    assert KNOWN_MAX == len(seen)
    assert {"10.6", "10.7", "10.8", "10.9"} == {each.address.rpartition(".")[0].rpartition(".")[0] for each in seen}
    assert ADDRESSES_MAX == sum(each.missing_since is None for each in seen)
    assert not memory.overfull


def test_many_targets_with_many_addresses() -> None:
    """Over all targets no more are taken than of a whole name."""
    memory = _memory(DnsName(kind="srv", family="ipv4"), "_kv._tcp.vllm")
    memory.take_targets(frozenset(Target(f"t{i}", 1) for i in range(6)), 0.0)
    for number in range(6):
        many = (f"10.{number}.{i // 256}.{i % 256}" for i in range(ADDRESSES_MAX))
        _take(memory, 0.0, *many, host=f"t{number}")

    assert KNOWN_MAX == len(list(memory.seen()))
    assert "more than" in picture([memory], {}).remarks["_kv._tcp.vllm"]


def test_addresses_that_nobody_can_be_reached_at() -> None:
    """Everybody, nobody, and this link."""
    memory = _memory(DnsName())
    _take(memory, 0.0, "0.0.0.0", "224.0.0.1", "169.254.169.254", "10.0.0.1")  # noqa: S104  nobody binds it
    _take(memory, 0.0, "::", "fe80::1", "ff02::1", kind=Kind.AAAA)

    assert ["10.0.0.1:8000"] == [*_ready(memory)]


_ADDRESSES = st.lists(st.sampled_from([f"10.0.0.{i}" for i in range(5)]), max_size=5)


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.one_of(st.none(), _ADDRESSES)), max_size=12), st.randoms())
def test_any_history_of_answers(history: list[tuple[float, list[str] | None]], chance: random.Random) -> None:
    """What stands is what the last answer has, and what lacked in answers for less than `forget_s` before it."""
    memory, now = _memory(), 0.0
    last_seen: dict[str, float] = {}
    missing: dict[str, float] = {}
    for pause_s, answer in history:
        now += pause_s
        if answer is None:
            continue
        chance.shuffle(answer)
        _take(memory, now, *answer)
        for address in answer:
            last_seen[address] = now
            missing.pop(address, None)
        for address in last_seen.keys() - set(answer):
            missing.setdefault(address, now)
        for address in [address for address, since in missing.items() if now - since >= FORGET_S]:
            del missing[address], last_seen[address]

    assert {f"{address}:8000": address not in missing for address in last_seen} == _ready(memory)
