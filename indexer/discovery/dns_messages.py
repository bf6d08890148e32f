"""DNS messages (RFC 1035, 2782, 3596), as far as a stub resolver needs them: A, AAAA and SRV. Pure.

Promise: whatever comes is an `Answered` or raises `BadMessage`, in time that grows with its length alone: names are
bounded, a pointer in one only leads back, and what it leads to is read once, however many lead there. Names are
compared and told in lower case, without the dot at the end.
"""

from __future__ import annotations

import ipaddress
import struct
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_BYTES_MAX: Final = 65_535
UDP_BYTES: Final = 1_232
"""What is said to be received in one datagram: no path cuts it (the DNS flag day of 2020)."""
_NAME_BYTES_MAX: Final = 255
_LABEL_BYTES_MAX: Final = 63
_CHAIN_MAX: Final = 16
"""Aliases (CNAME) that are followed within one answer."""
TTL_MAX: Final = 2**31 - 1
_IN: Final = 1
_CNAME: Final = 5
_OPT: Final = 41
_POINTER: Final = 0xC0
_PLAIN_BYTES, _LONG_BYTES = 4, 16
_IS_ANSWER: Final = 0x8000
_OTHER_OPERATION: Final = 0x7800
_IS_CUT: Final = 0x0200
_CODE: Final = 0x000F

_HEAD: Final = struct.Struct("!HHHHHH")
_END_OF_QUESTION: Final = struct.Struct("!HH")
_RECORD: Final = struct.Struct("!HHIH")
_SRV_HEAD: Final = struct.Struct("!HHH")


class Kind(IntEnum):
    """Types of records that are asked for."""

    A = 1
    AAAA = 28
    SRV = 33


class BadMessage(Exception):
    """It is no answer to the question."""


class Target(NamedTuple):
    """Of an SRV record. Priority and weight say nothing here: each engine is a source."""

    name: str
    port: int


class Answered(NamedTuple):
    """What a server said. `code`: its response code, 0 no error, 3 no such name.

    `addresses` or `targets`: what was asked for, in no order. `beside`: addresses of the targets that came with them.
    `ttl_s` None: there is nothing whose time to live it could be.
    """

    code: int
    is_truncated: bool
    ttl_s: int | None
    addresses: frozenset[str] = frozenset()
    targets: frozenset[Target] = frozenset()
    beside: Mapping[str, frozenset[str]] = MappingProxyType({})


class _Record(NamedTuple):
    name: str
    kind: int
    ttl_s: int
    start: int
    end: int


def question(number: int, name: str, kind: Kind, *, extended: bool = True) -> bytes:
    """The message that asks a recursive server. `extended`: say that more than 512 bytes are received (EDNS).

    Raises ValueError for what is no name.
    """
    asked = _packed(name) + _END_OF_QUESTION.pack(kind, _IN)
    head = _HEAD.pack(number, 0x0100, 1, 0, 0, int(extended))
    return head + asked + (b"\0" + _RECORD.pack(_OPT, UDP_BYTES, 0, 0) if extended else b"")


def normal(name: str) -> str:
    """One spelling of a name."""
    return name.rstrip(".").lower()


def _packed(name: str) -> bytes:
    labels = [label.encode("ascii") for label in normal(name).split(".")]  # UnicodeEncodeError is a ValueError
    packed = b"".join(bytes([len(label)]) + label for label in labels if len(label) <= _LABEL_BYTES_MAX) + b"\0"
    if not all(labels) or len(packed) != sum(map(len, labels)) + len(labels) + 1 or len(packed) > _NAME_BYTES_MAX:
        raise ValueError("no name: labels of 1..63 characters, 253 in all")
    return packed


def read_answer(data: bytes, number: int, name: str, kind: Kind) -> Answered:
    """The answer to that question. Raises `BadMessage`."""
    try:
        return _read(_Message(data), number, normal(name), kind)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadMessage("it ends in the middle, or is no message") from error


def _read(message: _Message, number: int, name: str, kind: Kind) -> Answered:
    said, flags, questions, answers, authorities, additional = _HEAD.unpack_from(message.data)
    if said != number or not flags & _IS_ANSWER or flags & _OTHER_OPERATION:
        raise BadMessage("no answer to this question")
    at = _HEAD.size
    if questions == 1:
        asked, at = message.name(at)
        if (asked, *_END_OF_QUESTION.unpack_from(message.data, at)) != (name, kind, _IN):
            raise BadMessage("the answer to another question")
        at += _END_OF_QUESTION.size
    answered = Answered(flags & _CODE, is_truncated=bool(flags & _IS_CUT), ttl_s=None)
    if answered.is_truncated or answered.code:
        return answered
    if questions != 1:
        raise BadMessage("no answer to this question")
    records, at = _records(message, at, answers)
    named, ttl_s = _followed(message, records, name)
    wanted = [record for record in records if record.kind == kind and record.name == named]
    answered = answered._replace(ttl_s=_least(ttl_s, wanted))
    if kind is not Kind.SRV:
        return answered._replace(addresses=frozenset(_address(message.data, record) for record in wanted))
    _, at = _records(message, at, authorities)
    return _with_targets(message, answered, wanted, _records(message, at, additional)[0])


def _with_targets(message: _Message, answered: Answered, wanted: list[_Record], additional: list[_Record]) -> Answered:
    targets = [_target(message, record) for record in wanted]
    there = frozenset(target for target in targets if target is not None)
    hosts = {target.name for target in there}
    found = [record for record in additional if record.kind in {Kind.A, Kind.AAAA} and record.name in hosts]
    beside: dict[str, set[str]] = {}
    for record in found:
        beside.setdefault(record.name, set()).add(_address(message.data, record))
    told = {host: frozenset(addresses) for host, addresses in beside.items()}
    return answered._replace(ttl_s=_least(answered.ttl_s, found), targets=there, beside=told)


def _least(ttl_s: int | None, records: list[_Record]) -> int | None:
    lives_s = [record.ttl_s for record in records]
    return min(lives_s if ttl_s is None else [ttl_s, *lives_s], default=None)


def _followed(message: _Message, records: list[_Record], name: str) -> tuple[str, int | None]:
    """What `name` is an alias of, and the least time to live on the way there."""
    aliases = {record.name: record for record in records if record.kind == _CNAME}
    ttl_s: int | None = None
    for _ in range(_CHAIN_MAX):
        record = aliases.get(name)
        if record is None:
            break
        ttl_s = record.ttl_s if ttl_s is None else min(ttl_s, record.ttl_s)
        name = message.name(record.start)[0]
    return name, ttl_s


def _records(message: _Message, at: int, count: int) -> tuple[list[_Record], int]:
    """The records of one section that are of the Internet, and where it ends."""
    found: list[_Record] = []
    for _ in range(count):
        name, at = message.name(at)
        kind, network, ttl_s, length = _RECORD.unpack_from(message.data, at)
        start = at + _RECORD.size
        at = start + length
        if at > len(message.data):
            raise BadMessage("a record ends beyond the message")
        if network == _IN:
            found.append(_Record(name, kind, ttl_s if ttl_s <= TTL_MAX else 0, start, at))
    return found, at


def _address(data: bytes, record: _Record) -> str:
    size = _PLAIN_BYTES if record.kind == Kind.A else _LONG_BYTES
    if record.end - record.start != size:
        raise BadMessage("an address of another length")
    packed = data[record.start : record.end]
    return ".".join(map(str, packed)) if size == _PLAIN_BYTES else str(ipaddress.IPv6Address(packed))


def _target(message: _Message, record: _Record) -> Target | None:
    """None: the record says that there is no such service."""
    _, _, port = _SRV_HEAD.unpack_from(message.data, record.start)
    name, end = message.name(record.start + _SRV_HEAD.size)
    if end != record.end:
        raise BadMessage("a record of another length")
    return Target(name, port) if name and port else None


class _Message:
    """Its bytes, and the names in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._known: dict[int, bytes] = {}
        """Names by where they begin: any number of records may point to the same long way of pointers."""

    def name(self, at: int) -> tuple[str, int]:
        """The name that begins there, and where what follows it begins."""
        data, passed, end, lowest = self.data, list[tuple[int, bytes]](), None, at
        while at not in self._known or end is None:
            length = data[at]
            if length & _POINTER == _POINTER:
                end = at + 2 if end is None else end
                passed.append((at, b""))
                at = (length & ~_POINTER) << 8 | data[at + 1]
                if at >= lowest:
                    raise BadMessage("a name that never ends")
                lowest = at
                continue
            if length & _POINTER:
                raise BadMessage("a label of an unknown kind")
            if not length:
                break
            passed.append((at, data[at + 1 : at + 1 + length]))
            at += length + 1
        return self._joined(passed, self._known.get(at, b"")), at + 1 if end is None else end

    def _joined(self, passed: list[tuple[int, bytes]], name: bytes) -> str:
        """Labels and pointers on the way to a name that is known, put before it."""
        for at, label in reversed(passed):
            if b"." in label:
                raise BadMessage("a label that none can be")
            name = b".".join((label, name)) if label and name else label or name
            if len(name) >= _NAME_BYTES_MAX:
                raise BadMessage("a name that is too long")
            self._known[at] = name
        return name.decode("ascii").lower()
