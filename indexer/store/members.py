"""[I/O] Replicas tell of themselves and hear of each other: one hash, one script a beat, ages by the server's clock.

Raises StoreFailure, as all calls; also where the key holds something that is not ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.sharding.members import Member, Reading
from indexer.store import lua
from indexer.store.failures import WRONG_TYPE, DamagedValue, StoreFailure
from indexer.store.layout import is_number
from indexer.store.outcomes import refusal

if TYPE_CHECKING:
    from indexer.store.client import Client, Reply

__all__ = ["Reading", "beat", "lift_drain", "mark_drain", "pack_member", "unpack_member", "who_runs"]

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Member)
_BEAT: Final = b"b:"
_UNDATED: Final = -1


def pack_member(member: Member) -> bytes:
    """As a beat holds it, behind the time."""
    return _ENCODER.encode(member)


def unpack_member(name: bytes, data: bytes) -> Member:
    """What a replica said under its name. Raises DamagedValue, also where it is another's."""
    try:
        member = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise DamagedValue("member") from error
    if member.name.encode() != name:
        raise DamagedValue("member")
    return member


async def beat(client: Client, key: bytes, member: Member, *, retain_ms: int, forget_ms: int) -> Reading:
    """Tell of `member` and hear of all. Who is silent for `forget_ms` is taken out, its drain mark, too.

    `key` is `layout.replicas_key`. The age of this beat is 0, of others how long ago they beat.
    """
    words = (member.name.encode(), pack_member(member), retain_ms, forget_ms)
    reply = _ours(await client.run(lua.BEAT, (key,), words))
    beats: dict[str, tuple[int, Member]] = {}
    drains: dict[str, str] = {}
    damaged = 0
    told = reply[1]
    for field, age_ms, value in zip(told[::3], told[1::3], told[2::3], strict=True):
        name = field[len(_BEAT) :]
        try:
            if not field.startswith(_BEAT):
                drains[name.decode()] = value.decode()
            elif age_ms == _UNDATED:
                damaged += 1
            else:
                beats[name.decode()] = age_ms, unpack_member(name, value)
        except (DamagedValue, UnicodeDecodeError):
            damaged += 1
    return Reading(beats, drains, damaged)


async def who_runs(client: Client, key: bytes) -> dict[str, int]:
    """Without beating oneself: replicas that did not say that they leave, and how many milliseconds ago they beat.

    For operators, who can do without the last second. A key that is not ours tells of nobody. Raises StoreFailure.
    """
    if await client.type_of(key) != "hash":
        return {}
    fields = (await client.fields(key)).items()
    now_ms = max(int(report.get("server_time_usec", 0)) for report in await client.reports()) // 1000
    found: dict[str, int] = {}
    for field, value in fields:
        beat_ms, bar, data = value.partition(b"|")
        if field.startswith(_BEAT) and bar and is_number(beat_ms) and not _leaves(field[len(_BEAT) :], data):
            found[field[len(_BEAT) :].decode(errors="replace")] = now_ms - int(beat_ms)
    return found


def _leaves(name: bytes, data: bytes) -> bool:
    """What cannot be read says nothing of leaving."""
    try:
        return unpack_member(name, data).leaving
    except DamagedValue:
        return False


async def mark_drain(client: Client, key: bytes, name: str, process: str, retain_ms: int) -> None:
    """Have the process that runs as replica `name` give up what it owns; it ends with the process."""
    if not process:
        raise ValueError("process: a mark names one")
    _ours(await client.run(lua.DRAIN, (key,), (name.encode(), process.encode(), retain_ms)))


async def lift_drain(client: Client, key: bytes, name: str) -> None:
    """Let a replica own partitions again."""
    _ours(await client.run(lua.DRAIN, (key,), (name.encode(), b"", 0)))


def _ours(reply: Reply) -> Reply:
    if refusal(reply) is not None:
        raise StoreFailure("refused", WRONG_TYPE)
    return reply
