"""[I/O] Commands about sources, which any replica may give: registry, generation and control stream in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from indexer.model import SourceId
from indexer.store import lua
from indexer.store.failures import DamagedValue
from indexer.store.layout import is_generation, source_id, source_name
from indexer.store.outcomes import Whereabouts, WrongType, refusal, unknown, whereabouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys

Verb = Literal["put", "edit", "restore", "clear", "remove", "doubt"]
CONTROL_ENTRIES: Final = 4_096
"""Commands kept in the control stream; a replica that missed more reads the registry anew."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a source. `nonce` names the command, also when it is sent again.

    `put` registers (a new generation unless an equal registration stands), `edit` changes the descriptor and nothing
    else, `restore` puts it back into a registry that was lost and leaves the generation to its owner, `clear` raises
    the generation, `remove` takes it out. `doubt` changes nothing in the store: its owner shall not believe what is
    known of it in the generation `known_generation`.
    """

    verb: Verb
    source: SourceId
    nonce: str
    descriptor: bytes = b""
    known_generation: int = 0
    expected: bytes | None = None
    """The descriptor that must stand, b"" for none; None: whatever stands."""
    counts: bool = False
    """Whether it counts against `limits.max_clears_per_minute` at every replica."""


class Commanded(msgspec.Struct, frozen=True):
    """Done. `before`: the map of an earlier generation, to be unlinked. `changed` is False where an equal one stood.

    `entry`: its id in the control stream; None where nothing was written there, or it is not known any more.
    """

    generation: int
    before: Whereabouts | None = None
    changed: bool = True
    entry: bytes | None = None


class NoSuchSource(msgspec.Struct, frozen=True):
    """The registry does not have it."""


class OtherRegistration(msgspec.Struct, frozen=True):
    """Another descriptor stands than was expected, b"" for none: nothing was done."""

    stands: bytes


class Given(msgspec.Struct, frozen=True):
    """A command as the control stream tells it: what stands since."""

    verb: Verb
    source: SourceId
    generation: int
    descriptor: bytes
    counted: bytes = b""
    """Its nonce, where it counts against `limits.max_clears_per_minute`."""


Outcome = Commanded | NoSuchSource | OtherRegistration | WrongType


def read_command(fields: Mapping[bytes, bytes]) -> Given:
    """An entry of the control stream. Raises DamagedValue; who meets one reads the registry anew."""
    try:
        if not is_generation(fields[b"g"]):
            raise DamagedValue("command")
        return msgspec.convert(
            {
                "verb": fields[b"v"].decode(),
                "source": source_id(fields[b"s"]),
                "generation": int(fields[b"g"]),
                "descriptor": fields[b"d"],
                "counted": fields.get(b"c", b""),
            },
            Given,
        )
    except (KeyError, ValueError, msgspec.ValidationError):
        raise DamagedValue("command") from None


async def give(client: Client, keys: PartitionKeys, command: Command, retain_ms: int) -> Outcome:
    """Give a command. Raises StoreFailure; given again with the same nonce it has its effect once."""
    reply = await client.run(
        lua.COMMAND,
        (keys.sources, keys.source(command.source), keys.control),
        (
            command.verb.encode(),
            source_name(command.source),
            command.descriptor,
            command.known_generation,
            command.nonce.encode(),
            retain_ms,
            CONTROL_ENTRIES,
            b"" if command.expected is None else b"=%b" % command.expected,
            b"1" if command.counts else b"",
        ),
    )
    if reply[0] == b"UNKNOWN":
        return NoSuchSource()
    if reply[0] == b"SAME":
        return Commanded(int(reply[1]), changed=False)
    if reply[0] == b"OTHER":
        return OtherRegistration(reply[1])
    refused = refusal(reply)
    if isinstance(refused, WrongType):
        return refused
    if refused is not None:
        raise unknown(reply)
    generation, entry = int(reply[1]), reply[2] or None
    before = None if reply[3:] == [b"again"] else whereabouts(*reply[3:])
    if before is not None and before.generation == generation:
        before = None
    return Commanded(generation, before, entry=entry)
