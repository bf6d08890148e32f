"""[I/O] Questions to name servers, as the system's own resolver would ask them: UDP, and TCP where an answer is cut.

Promise: an answer is what a server said in whole, or `NothingKnown` is raised: a failure, silence or half an answer
never passes for "there is none". Bounded in time by `PATIENCE_S` a question. `/etc/resolv.conf` is read for each round
of questions, so that a change counts; `/etc/hosts` is not looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from indexer.discovery.dns_messages import MESSAGE_BYTES_MAX, Answered, BadMessage, Kind, question, read_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.settings.dns_rules import Server

RESOLV_CONF: Final = Path("/etc/resolv.conf")
CONF_BYTES_MAX: Final = 65_536
PORT: Final = 53
TRY_S: Final = 1.5
"""For one answer of one server."""
TRIES: Final = 2
"""Of all servers, one after the other."""
PATIENCE_S: Final = 6.0
"""For one question, whatever its servers do."""
SERVERS_MAX: Final = 3
SEARCH_MAX: Final = 6
NDOTS_MAX: Final = 15
_NO_ERROR, _FORMAT_ERROR, _NO_SUCH_NAME = 0, 1, 3
_CODES: Final = {1: "format_error", 2: "server_failure", 4: "not_implemented", 5: "refused"}


class NothingKnown(Exception):
    """No server said anything that could be used. `reason` is one of a closed list: a metric's label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Rules(NamedTuple):
    """Whom to ask, and for which names. `ndots`: a name with fewer dots is looked for in the search list first."""

    servers: tuple[Server, ...]
    search: tuple[str, ...] = ()
    ndots: int = 1

    def names(self, name: str) -> list[str]:
        """What `name` may mean, in the order in which it is asked for."""
        if name.endswith("."):
            return [name]
        longer = [f"{name}.{domain}" for domain in self.search]
        return [name, *longer] if name.count(".") >= self.ndots else [*longer, name]


def system_rules(servers: Sequence[Server] = (), path: Path = RESOLV_CONF) -> Rules:
    """Those of the system; `servers` are asked instead of its own where they are given."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            rules = read_rules(file.read(CONF_BYTES_MAX))
    except OSError:
        rules = Rules(())
    return rules._replace(servers=tuple(servers) or rules.servers or (("127.0.0.1", PORT),))


def read_rules(text: str) -> Rules:
    """A resolv.conf. What is not understood is left alone, as every resolver does."""
    servers: list[Server] = []
    search: tuple[str, ...] = ()
    ndots = 1
    for line in text.splitlines():
        words = line.split()
        match words[:1]:
            case ["nameserver"] if len(words) > 1 and _is_address(words[1]):
                servers.append((words[1], PORT))
            case ["search" | "domain"]:
                search = tuple(word.rstrip(".") for word in words[1:] if word.rstrip("."))[:SEARCH_MAX]
            case ["options"]:
                for word in words[1:]:
                    name, _, value = word.partition(":")
                    if name == "ndots" and value.isascii() and value.isdigit():
                        ndots = min(int(value[:4]), NDOTS_MAX)
    return Rules(tuple(servers[:SERVERS_MAX]), search, ndots)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class NameServers:
    """Asks by the rules that stand."""

    def __init__(self, rules: Rules, chance: random.Random) -> None:
        self._rules = rules
        self._chance = chance

    async def ask(self, name: str, kind: Kind) -> Answered:
        """What there is under `name`, looked for as the system would; nothing where no server knows such a name.

        Raises `NothingKnown`: also where a server failed for one of the names that were looked for before, since what
        it did not say may have been the answer.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                answered = Answered(_NO_SUCH_NAME, is_truncated=False, ttl_s=None)
                for meant in self._rules.names(name):
                    try:
                        answered = await self._ask_servers(meant, kind)
                    except ValueError:  # with a domain of the search list it is too long to be a name
                        continue
                    if answered.addresses or answered.targets:
                        break
                return answered
        except TimeoutError as error:
            raise NothingKnown("no_answer") from error

    async def _ask_servers(self, name: str, kind: Kind) -> Answered:
        reason = "no_answer"
        for _ in range(TRIES):
            for server in self._rules.servers:
                try:
                    async with asyncio.timeout(TRY_S):
                        answered = await self._ask(server, name, kind)
                except TimeoutError:
                    reason = "no_answer"
                except (OSError, asyncio.IncompleteReadError):
                    reason = "not_reached"
                except BadMessage:
                    reason = "bad_message"
                else:
                    if answered.code in {_NO_ERROR, _NO_SUCH_NAME}:
                        return answered
                    reason = _CODES.get(answered.code, "other_code")
        raise NothingKnown(reason)

    async def _ask(self, server: Server, name: str, kind: Kind) -> Answered:
        answered = await self._by_udp(server, name, kind)
        if answered.code == _FORMAT_ERROR:  # from before 1999
            answered = await self._by_udp(server, name, kind, extended=False)
        if answered.is_truncated:
            answered = await self._by_tcp(server, name, kind)
            if answered.is_truncated:
                raise BadMessage("cut, though there was room")
        return answered

    async def _by_udp(self, server: Server, name: str, kind: Kind, *, extended: bool = True) -> Answered:
        number = self._chance.getrandbits(16)
        asked = question(number, name, kind, extended=extended)
        received: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=_WAITING_MAX)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Datagrams(received), remote_addr=server
        )
        try:
            transport.sendto(asked)
            while True:
                data = await received.get()
                if isinstance(data, OSError):
                    raise data
                try:
                    return read_answer(data, number, name, kind)
                except BadMessage:  # late, or somebody else's word: the true one may still come
                    if not _is_ours(data, number):
                        continue
                    raise
        finally:
            transport.close()

    async def _by_tcp(self, server: Server, name: str, kind: Kind) -> Answered:
        number = self._chance.getrandbits(16)
        asked = question(number, name, kind, extended=False)
        reader, writer = await asyncio.open_connection(*server, limit=MESSAGE_BYTES_MAX)
        try:
            writer.write(len(asked).to_bytes(2, "big") + asked)
            size = int.from_bytes(await reader.readexactly(2), "big")
            return read_answer(await reader.readexactly(size), number, name, kind)
        finally:
            writer.transport.abort()


_WAITING_MAX: Final = 16
"""Datagrams that came and are not looked at; beyond, they are dropped."""


def _is_ours(data: bytes, number: int) -> bool:
    return data[:2] == number.to_bytes(2, "big")


class _Datagrams(asyncio.DatagramProtocol):
    """What comes from the one server that the socket is connected to."""

    def __init__(self, received: asyncio.Queue[bytes | OSError]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: object) -> None:
        """One of them."""
        del addr
        self._put(data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there, or it cannot be reached."""
        self._put(cast("OSError", exc))

    def _put(self, item: bytes | OSError) -> None:
        if not self._received.full():
            self._received.put_nowait(item)
