"""DNS messages, beside another implementation of them (dnspython), and whatever else may come."""

from __future__ import annotations

import contextlib
from typing import Any

import dns.flags
import dns.message
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.discovery.dns_messages import BadMessage, Kind, Target, question, read_answer

NAME = "_kv-events._tcp.vllm.ns.svc.cluster.local"


def _query(name: str = NAME, kind: Kind = Kind.A) -> dns.message.Message:
    return dns.message.from_wire(question(7, name, kind))


def _answer(kind: Kind, *sets: tuple[str, int, str, list[str]], name: str = NAME, size: int = 65_535) -> bytes:
    response = dns.message.make_response(_query(name, kind))
    for owner, ttl_s, its_kind, records in sets:
        response.answer.append(dns.rrset.from_text_list(owner, ttl_s, "IN", its_kind, records))
    return response.to_wire(max_size=size)


def test_a_question_is_what_others_read() -> None:
    """Name, type, recursion wanted, room for more than 512 bytes."""
    query = _query("VLLM.ns.svc.cluster.local.", Kind.AAAA)

    assert "vllm.ns.svc.cluster.local. IN AAAA" == str(query.question[0])
    assert (7, dns.flags.RD, 1232) == (query.id, query.flags, query.payload)
    assert -1 == dns.message.from_wire(question(7, NAME, Kind.A, extended=False)).edns


@pytest.mark.parametrize("name", ["", ".", "a..b", "a" * 64, ".".join(["a" * 60] * 5), "ä.example"])
def test_what_is_no_name(name: str) -> None:
    """Nothing is asked for it."""
    with pytest.raises(ValueError):  # noqa: PT011  whose text says what is wrong, or the codec's
        question(1, name, Kind.A)


def test_addresses() -> None:
    """Of either kind, with the time to live; in no order, each once."""
    plain = read_answer(_answer(Kind.A, (NAME + ".", 30, "A", ["10.0.0.2", "10.0.0.1"])), 7, NAME, Kind.A)
    long = read_answer(_answer(Kind.AAAA, (NAME + ".", 5, "AAAA", ["FD00:0:0::1"])), 7, NAME.upper(), Kind.AAAA)

    assert (0, 30, {"10.0.0.1", "10.0.0.2"}) == (plain.code, plain.ttl_s, plain.addresses)
    assert (5, {"fd00::1"}) == (long.ttl_s, long.addresses)


def test_an_alias_is_followed_within_the_answer() -> None:
    """The least time to live on the way counts; other names' records do not."""
    said = _answer(
        Kind.A,
        (NAME + ".", 9, "CNAME", ["B.example."]),
        ("b.example.", 60, "CNAME", ["c.example."]),
        ("c.example.", 30, "A", ["10.0.0.1"]),
        ("d.example.", 1, "A", ["10.0.0.9"]),
    )

    answered = read_answer(said, 7, NAME, Kind.A)

    assert (9, {"10.0.0.1"}) == (answered.ttl_s, answered.addresses)


def test_aliases_in_a_circle_lead_nowhere() -> None:
    """And end."""
    said = _answer(Kind.A, (NAME + ".", 9, "CNAME", ["b.example."]), ("b.example.", 9, "CNAME", [NAME + "."]))

    assert frozenset() == read_answer(said, 7, NAME, Kind.A).addresses


def test_service_records_and_what_comes_with_them() -> None:
    """Targets, and their addresses where the server sends them along; `.` says that there is no such service."""
    response = dns.message.make_response(_query(kind=Kind.SRV))
    records = ["0 50 5557 vllm-0.vllm.ns.", "0 50 5558 vllm-1.vllm.ns.", "0 0 0 .", "0 0 0 x."]
    response.answer.append(dns.rrset.from_text_list(NAME + ".", 30, "IN", "SRV", records))
    response.additional.append(dns.rrset.from_text_list("vllm-0.vllm.ns.", 5, "IN", "A", ["10.0.0.1"]))
    response.additional.append(dns.rrset.from_text_list("else.", 1, "IN", "A", ["10.0.0.9"]))

    answered = read_answer(response.to_wire(), 7, NAME, Kind.SRV)

    assert {Target("vllm-0.vllm.ns", 5557), Target("vllm-1.vllm.ns", 5558)} == answered.targets
    assert {"vllm-0.vllm.ns": {"10.0.0.1"}} == answered.beside
    assert 5 == answered.ttl_s


def test_many_records() -> None:
    """As many as a message holds."""
    many = [f"10.0.{i // 256}.{i % 256}" for i in range(4_000)]

    assert set(many) == read_answer(_answer(Kind.A, (NAME + ".", 5, "A", many)), 7, NAME, Kind.A).addresses


def test_no_data_and_codes() -> None:
    """An empty answer has neither addresses nor a time to live; a code is told as it came."""
    empty = read_answer(_answer(Kind.A), 7, NAME, Kind.A)
    response = dns.message.make_response(_query())
    response.set_rcode(2)
    cut = dns.message.make_response(_query())
    cut.flags |= dns.flags.TC

    assert (0, None, frozenset()) == (empty.code, empty.ttl_s, empty.addresses)
    assert 2 == read_answer(response.to_wire(), 7, NAME, Kind.A).code
    assert read_answer(cut.to_wire(), 7, NAME, Kind.A).is_truncated


def test_answers_to_other_questions_are_none() -> None:
    """Another number, name or type, and the question itself sent back."""
    said = _answer(Kind.A, (NAME + ".", 30, "A", ["10.0.0.2"]))

    for number, name, kind in ((8, NAME, Kind.A), (7, "b.example", Kind.A), (7, NAME, Kind.AAAA)):
        with pytest.raises(BadMessage):
            read_answer(said, number, name, kind)
    with pytest.raises(BadMessage):
        read_answer(question(7, NAME, Kind.A), 7, NAME, Kind.A)


@pytest.mark.parametrize("pointer", [b"\xc0\x0c", b"\xc0\x0e", b"\xc1\x00", b"\x80", b"\x05ab"])
def test_names_that_never_end(pointer: bytes) -> None:
    """A pointer to itself, forward, beyond the end, and half a label."""
    head = _answer(Kind.A)[:2] + b"\x84\x00\x00\x01\x00\x01\x00\x00\x00\x00"

    with pytest.raises(BadMessage):
        read_answer(head + pointer, 7, NAME, Kind.A)


class Counted(bytes):
    """How often something of it is looked at, one by one."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401  as the base's
        type(self).looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("label", [b"", b"\x01a"])
def test_a_long_way_is_gone_once(label: bytes) -> None:
    """Thousands of records point to a chain of thousands of pointers, or of labels and pointers."""
    head = _answer(Kind.A)
    places, chain = [12], b""
    while len(chain) < 16_000 and len(places) < (100 if label else 16_000):
        places.append(len(head) + 12 + len(chain))
        chain += label + (0xC000 | places[-2]).to_bytes(2, "big")
    last = (0xC000 | places[-1]).to_bytes(2, "big")
    records = b"\xc0\x0c\x00\x10\x00\x01\x00\x00\x00\x01" + len(chain).to_bytes(2, "big") + chain
    count = (65_000 - len(records)) // 12
    records += (last + b"\x00\x01\x00\x01\x00\x00\x00\x01\x00\x00") * count
    data = Counted(head[:6] + (count + 1).to_bytes(2, "big") + head[8:] + records)
    Counted.looks = 0

    with contextlib.suppress(BadMessage):
        read_answer(data, 7, NAME, Kind.A)
    assert 0 < Counted.looks < 2 * len(data)


@given(st.binary(max_size=80), st.integers(0, 200), st.sampled_from(list(Kind)))
def test_whatever_comes_is_read_or_refused(noise: bytes, at: int, kind: Kind) -> None:
    """Garbage, cut answers, and answers with garbage in them raise nothing else."""
    records = {Kind.A: ["10.0.0.1"], Kind.AAAA: ["fd00::1"], Kind.SRV: ["0 0 1 a.b."]}[kind]
    whole = _answer(kind, (NAME + ".", 30, kind.name, records))
    for data in (noise, whole[:at], whole[:at] + noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            read_answer(data, 7, NAME, kind)
        except BadMessage:
            continue
