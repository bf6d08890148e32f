"""What is fuzzed, and what must hold of any bytes at all. Each target raises where it does not."""

from __future__ import annotations

import ipaddress
import json
import math
import re
from typing import TYPE_CHECKING, Final

import dns.message
import dns.rrset
import msgspec

from api.rest.lookup_request import LookupRequests
from api.rest.plain_json import PlainJson
from indexer.decode import vllm
from indexer.decode.envelope import UNDECODABLE, peek_rank, peek_ts, stamp
from indexer.decode.large import decode_large
from indexer.decode.vllm import decode
from indexer.discovery.dns_messages import BadMessage, Kind, question, read_answer
from indexer.discovery.event_endpoints import NotTold, read_event_sources
from indexer.errors import IndexerError
from indexer.hashing.texts import TextMemo
from indexer.index.served import NAME_MAX
from indexer.model import EventBatch
from indexer.scraping.models_list import NoList, read_models
from tests.support.core_events import as_array, payload, stored
from tests.support.decoded import check, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME: Final = "vllm.ns.svc"
TOKENS_MAX: Final = 1_000
_GOOD: Final = (stored([1, 2], range(8)), stored([3], range(4), 2))
"""Before and behind the event that is fuzzed."""


def batches(data: bytes) -> None:
    """Bytes of an engine: a batch or none; the same by every way; its time stamp can be seen without decoding it."""
    batch = decode(data)
    check(batch)
    peeked, _, _ = peek_ts(data), peek_rank(data), stamp(data)
    if batch is not None and math.isfinite(batch.ts):
        assert peeked == batch.ts
    tolerant, large = vllm._decode_tolerant(data), decode_large(data)
    check(tolerant)
    pieces = (
        None if large is None else EventBatch(large.ts, [e for piece in large.pieces for e in piece], large.dp_rank)
    )
    check(pieces)
    if _is_plain(data):  # what nobody reads of an event is judged by none but the tolerant way
        assert digest(batch) == digest(tolerant) == digest(pieces)


def _is_plain(data: bytes) -> bool:
    try:
        msgspec.msgpack.decode(data)
    except UNDECODABLE:
        return False
    return True


def events(data: bytes) -> None:
    """One event among good ones, in either form: whatever it is, the others mean what they meant."""
    try:
        msgspec.msgpack.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return  # not even as long as it says it is
    for form in (dict, as_array):
        first, last = (form(event) for event in _GOOD)
        batch = decode(payload(first, msgspec.Raw(data), last, ts=1.0))
        check(batch)
        assert batch is not None
        assert len(batch.events) == 3
        alone = decode(payload(first, last, ts=1.0))
        assert digest(alone) == digest(EventBatch(1.0, [batch.events[0], batch.events[2]], batch.dp_rank))


def lookups(data: bytes) -> None:
    """The body of a question: a question or a refusal, and where the quick reader answers the strict one agrees."""
    quick = PlainJson(TOKENS_MAX, TextMemo()).read(data)
    try:
        strict = LookupRequests(TOKENS_MAX).parse_strictly("json", data, b"", {}).query
    except IndexerError:
        strict = None
    assert quick is None or quick == strict


def packed_lookups(data: bytes) -> None:
    """The same as MessagePack and as bare ids with a query string."""
    requests = LookupRequests(TOKENS_MAX)
    for form in ("msgpack", "ids"):
        try:
            requests.parse_strictly(form, data, data[:64], {})  # type: ignore[arg-type]
        except IndexerError:
            continue


def names(data: bytes) -> None:
    """What name servers answer: an answer to the question, bounded, or none."""
    for kind in Kind:
        try:
            answered = read_answer(data, int.from_bytes(data[:2], "big"), NAME, kind)
        except BadMessage:
            continue
        assert len(answered.addresses) + len(answered.targets) <= len(data)
        assert all(0 < target.port < 2**16 and target.name == target.name.lower() for target in answered.targets)
        for address in answered.addresses.union(*answered.beside.values()):
            ipaddress.ip_address(address)


def tellings(data: bytes) -> None:
    """What engines say of themselves: never another host than their own, never an empty or endless name."""
    try:
        told = read_event_sources(data, "10.0.0.5")
    except NotTold:
        told = None
    for endpoints in () if told is None else told.of_rank.values():
        for endpoint in filter(None, endpoints):
            assert re.fullmatch(r"tcp://10\.0\.0\.5:[1-9][0-9]{0,4}", endpoint)
    try:
        served = read_models(data)
    except NoList:
        return
    assert served.names
    assert all(0 < len(name) <= NAME_MAX and name.isprintable() for name in served.names + served.adapters)
    assert len(served.names) == len({*served.names} - {*served.adapters})


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    each.__name__: each for each in (batches, events, lookups, packed_lookups, names, tellings)
}


def _answers() -> Iterator[bytes]:
    """As a name server gives them."""
    for kind, records in ((Kind.A, ["10.0.0.1"]), (Kind.AAAA, ["fd00::1"]), (Kind.SRV, ["0 0 1 a.b.", "0 0 2 c."])):
        response = dns.message.make_response(dns.message.from_wire(question(7, NAME, kind)))
        response.answer.append(dns.rrset.from_text_list(f"{NAME}.", 5, "IN", "CNAME", ["x.y."]))
        response.answer.append(dns.rrset.from_text_list("x.y.", 5, "IN", kind.name, records))
        response.additional.append(dns.rrset.from_text_list("a.b.", 5, "IN", "A", ["10.0.0.2"]))
        yield response.to_wire()


def seeds(target: str, recorded: list[bytes]) -> list[bytes]:
    """Where mutation begins: `recorded` are batches of real engines."""
    if target == "batches":
        return recorded
    if target == "events":
        decoded = [msgspec.msgpack.decode(each) for each in recorded]
        return [msgspec.msgpack.encode(event) for each in decoded if isinstance(each, list) for event in each[1]]
    if target == "names":
        return list(_answers())
    if target == "tellings":
        return [
            b'{"0": {"enable_kv_cache_events": true, "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://10.0.0.5:1"}}',
            b'[{"data_parallel_rank": 1, "endpoint": "tcp://0.0.0.0:5557", "replay_endpoint": null}]',
            b'{"data": [{"id": "m", "root": "/m", "parent": null}, {"id": "a", "root": "x", "parent": "m"}]}',
        ]
    documents: list[dict[str, object]] = [
        {"token_ids": [1, 2, 3]},
        {"token_ids": list(range(300)), "model": "m", "pods": ["a", "[b]"], "timeout_ms": 5},
        {"block_hashes": ["9f3c", 7], "block_size": 16, "prompt_tokens": 32, "scheme": "kvi1"},
        {"token_ids": [1], "mm_items": [{"hash": "x", "offset": 0, "length": 1}], "min_sequence": {"p": 1}},
        {"messages": [{"role": "user", "content": "hi"}], "model": "m", "limit": 3, "group": "pod"},
        {"prompt": "hi", "cache_salt": "s", "tenant": "t", "partial": True},
    ]
    encode = (lambda d: json.dumps(d).encode()) if target == "lookups" else msgspec.msgpack.encode
    return [encode(document) for document in documents]
