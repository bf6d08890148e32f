"""[I/O] The only module that uses the Redis library: connections, deadlines, retries, and what errors mean.

Every call has a deadline for each try, is tried again a few times with jitter when the store did not answer, and goes
through one circuit breaker. Trying again is safe because every call here is: reads, UNLINK, and scripts that notice
that they were done already. One client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec

from indexer.store.breaker import Breaker, BreakerOptions
from indexer.store.failures import FailureKind, StoreFailure
from indexer.store.library import ClusterNode, NoBackoff, Redis, RedisCluster, Retry, Sentinel
from indexer.store.library import exceptions as theirs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from indexer.ports import Clock
    from indexer.store.address import Address
    from indexer.store.lua import Script

Word: TypeAlias = bytes | int
"""What a script is told."""
Reply: TypeAlias = list[Any]
"""What a script says: a list whose first word says how to read the rest."""
StreamEntry: TypeAlias = tuple[bytes, dict[bytes, bytes]]

CONNECTIONS_MAX: Final = 64
"""To one server. Calls beyond `calls_at_once` wait for their turn, blocking reads aside, which are one a follower."""

_ALL: Final = (theirs.RedisError, theirs.RedisClusterException, OSError)  # TimeoutError is an OSError
_UNANSWERED: Final[frozenset[FailureKind]] = frozenset({"unreachable", "timeout", "loading"})
_KINDS: Final[tuple[tuple[type[Exception], FailureKind], ...]] = (  # the first that fits: some derive from others
    (theirs.AuthenticationError, "denied"),
    (theirs.AuthorizationError, "denied"),
    (theirs.NoPermissionError, "denied"),
    (theirs.AuthenticationWrongNumberOfArgsError, "denied"),
    (theirs.BusyLoadingError, "loading"),
    (theirs.ClusterDownError, "loading"),
    (theirs.MasterDownError, "loading"),
    (theirs.TryAgainError, "loading"),
    (theirs.SlotNotCoveredError, "loading"),
    (theirs.OutOfMemoryError, "out_of_memory"),
    (theirs.ReadOnlyError, "read_only"),
    (theirs.TimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (theirs.ConnectionError, "unreachable"),
    (theirs.RedisClusterException, "unreachable"),
    (theirs.ClusterError, "unreachable"),
    (OSError, "unreachable"),
    (theirs.ResponseError, "refused"),
    (theirs.RedisError, "refused"),
)
_BY_CODE: Final[dict[str, FailureKind]] = {
    "OOM": "out_of_memory",
    "READONLY": "read_only",
    "MISCONF": "read_only",
    "NOREPLICAS": "read_only",
    "NOPERM": "denied",
    "NOAUTH": "denied",
    "WRONGPASS": "denied",
    "LOADING": "loading",
    "BUSY": "loading",
    "MASTERDOWN": "loading",
    "CLUSTERDOWN": "loading",
    "TRYAGAIN": "loading",
}


class Connection(Protocol):
    """All that is used of the library's clients."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  the library's own looseness ends here
        """Send a command and return its reply, in shapes of RESP2."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`timeout_s` bounds one try, from waiting for a turn to the reply; `retries` come after it, with rests between.

    A rest is a random part of `rest_s`, doubled each time.
    """

    timeout_s: float = 0.5
    retries: int = 2
    rest_s: float = 0.05
    calls_at_once: int = 32
    breaker: BreakerOptions = BreakerOptions()


class Client:
    """Calls to one store. `close` it on the loop that used it."""

    def __init__(self, address: Address, options: ClientOptions, clock: Clock, chance: Random) -> None:
        self._options = options
        self._clock = clock
        self._chance = chance
        self._turns = asyncio.Semaphore(options.calls_at_once)
        self._connection = connect(address, options)
        self.breaker = Breaker(options.breaker)
        self.failures: Counter[str] = Counter()
        """Calls that failed for good, by kind."""
        self.is_cluster = address.kind == "cluster"

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await self._connection.aclose()

    # -- calls: each raises StoreFailure ------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[bytes], words: Sequence[Word]) -> Reply:
        """Run a script, loading it where the server does not know it."""
        try:
            reply = await self._call("EVALSHA", script.sha1, len(keys), *keys, *words)
        except _ScriptUnknown as unknown:
            try:
                reply = await self._call("EVAL", script.source, len(keys), *keys, *words)
            except StoreFailure as failure:
                failure.may_be_done = failure.may_be_done or unknown.unsure
                raise
        if not isinstance(reply, list):
            raise StoreFailure("refused", f"script {script.name}: a reply of another shape")
        return reply

    async def string(self, key: bytes) -> bytes | None:
        """GET."""
        value: bytes | None = await self._call("GET", key)
        return value

    async def type_of(self, key: bytes) -> str:
        """TYPE; `none` where there is no such key."""
        value: bytes = await self._call("TYPE", key)
        return value.decode(errors="replace")

    async def fields(self, key: bytes) -> dict[bytes, bytes]:
        """HGETALL: only for hashes known to be small."""
        value: dict[bytes, bytes] = await self._call("HGETALL", key)
        return value

    async def field_of_each(self, keys: Sequence[bytes], field: bytes) -> list[bytes | None]:
        """HGET of one field of each hash, of whatever slots: one message to each server. None where it is not set."""
        values: list[bytes | None] = await self._call(*(("HGET", key, field) for key in keys)) if keys else []
        return values

    async def string_of_each(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """GET of each key, of whatever slots: one message to each server. None where it is not set."""
        values: list[bytes | None] = await self._call(*(("GET", key) for key in keys)) if keys else []
        return values

    async def ends_of_each(
        self, keys: Sequence[bytes], streams: Sequence[bytes]
    ) -> tuple[list[bytes | None], list[list[StreamEntry]]]:
        """GET of each key, and of each stream its newest entry alone: one message to each server for all of them."""
        if not keys and not streams:
            return [], []
        newest = (("XREVRANGE", stream, b"+", b"-", "COUNT", 1) for stream in streams)
        told = await self._call(*(("GET", key) for key in keys), *newest)
        return told[: len(keys)], told[len(keys) :]

    async def claim(self, key: bytes, field: bytes, value: bytes) -> None:
        """HSETNX: set a field of a hash unless it is set."""
        await self._call("HSETNX", key, field, value)

    async def scan(self, key: bytes, cursor: int, count: int) -> tuple[int, dict[bytes, bytes]]:
        """One step of HSCAN: the next cursor (0 at the end) and fields, some perhaps again."""
        following, fields = await self._call("HSCAN", key, cursor, "COUNT", count)
        return int(following), fields

    async def entries_after(self, key: bytes, after: bytes, count: int) -> list[StreamEntry]:
        """Entries of a stream behind an id, without waiting."""
        entries: list[StreamEntry] = await self._call("XRANGE", key, b"(" + after, b"+", "COUNT", count)
        return entries

    async def last_entries(self, key: bytes, count: int) -> list[StreamEntry]:
        """The newest entries of a stream, the last one first."""
        entries: list[StreamEntry] = await self._call("XREVRANGE", key, b"+", b"-", "COUNT", count)
        return entries

    async def entries_up_to(self, key: bytes, up_to: bytes, count: int) -> list[StreamEntry]:
        """Entries of a stream from an id backwards (`+`: from its end; `(` before an id leaves that out)."""
        entries: list[StreamEntry] = await self._call("XREVRANGE", key, up_to, b"-", "COUNT", count)
        return entries

    async def has_entry(self, key: bytes, entry_id: bytes) -> bool:
        """Whether a stream has that entry (still)."""
        return bool(await self._call("XRANGE", key, entry_id, entry_id))

    async def entries_of_each(self, after: Mapping[bytes, bytes], count: int) -> dict[bytes, list[StreamEntry]]:
        """Entries behind an id of each stream, without waiting: one message to each server, whatever the number."""
        if not self.is_cluster:
            found = await self._call("XREAD", "COUNT", count, "STREAMS", *after, *after.values())
            return dict(found or ())
        asked = [("XRANGE", key, b"(" + position, b"+", "COUNT", count) for key, position in after.items()]
        return dict(zip(after, await self._call(*asked), strict=True))

    async def await_entries(
        self, after: Mapping[bytes, bytes], count: int, block_s: float
    ) -> dict[bytes, list[StreamEntry]]:
        """Entries behind an id of each stream, waiting up to `block_s` for one. Not in a cluster."""
        words = ("COUNT", count, "BLOCK", max(1, round(block_s * 1000)), "STREAMS", *after, *after.values())
        streams = await self._call("XREAD", *words, block_s=block_s)
        return dict(streams or ())

    async def unlink(self, keys: Sequence[bytes]) -> None:
        """Take keys of one slot away; their memory is freed in the background of the server."""
        if keys:
            await self._call("UNLINK", *keys)

    async def unlink_each(self, keys: Sequence[bytes]) -> int:
        """The same for keys of whatever slots, in one message to each server; how many of them there were."""
        if not keys:
            return 0
        if not self.is_cluster:
            gone: int = await self._call("UNLINK", *keys)
            return gone
        return sum(await self._call(*(("UNLINK", key) for key in keys)))

    async def bytes_used(self, key: bytes) -> int:
        """MEMORY USAGE, sampled; 0 where there is no such key."""
        return await self._call("MEMORY USAGE", key) or 0

    async def reports(self) -> list[dict[str, Any]]:
        """INFO of every server that takes writes."""
        report = await self._call("INFO", everywhere=True)
        nested = bool(report) and all(isinstance(each, dict) and "redis_version" in each for each in report.values())
        return list(report.values()) if nested else [report]

    async def servers(self) -> list[str]:
        """Names, for `scan_keys`, of the servers that take writes; the one of no name where there is no cluster."""
        if not self.is_cluster:
            return [""]
        await self._call("PING", everywhere=True)  # the library knows them once it spoke to one
        return [node.name for node in cast("RedisCluster", self._connection).get_primaries()]

    async def scan_keys(self, server: str, cursor: int, pattern: bytes, count: int) -> tuple[int, list[bytes]]:
        """One step of SCAN at one of `servers`: the next cursor (0 at the end) and keys, some perhaps again."""
        following, keys = await self._call("SCAN", cursor, "MATCH", pattern, "COUNT", count, at=server)
        if isinstance(following, dict):  # of a cluster, where the library asks several at once
            (following,) = following.values()
        return int(following), keys

    # -- how ----------------------------------------------------------------------------------------------------------

    async def _call(self, *words: Any, block_s: float = 0.0, everywhere: bool = False, at: str = "") -> Any:  # noqa: ANN401  shapes are the callers'
        unsure = False
        for attempt in range(1, self._options.retries + 2):
            try:
                return await self._attempt(words, block_s, everywhere=everywhere, at=at)
            except StoreFailure as failure:
                unsure = failure.may_be_done = unsure or failure.may_be_done  # an earlier try may be on its way still
                if failure.kind not in _UNANSWERED or attempt > self._options.retries:
                    self.failures[failure.kind] += 1
                    raise
            except _ScriptUnknown as unknown:
                unknown.unsure = unsure
                raise
            await asyncio.sleep(self._options.rest_s * 2**attempt * self._chance.random())
        raise AssertionError  # the last attempt returned or raised

    async def _attempt(self, words: Sequence[Any], block_s: float, *, everywhere: bool, at: str) -> Any:  # noqa: ANN401  as above
        if not self.breaker.allow(self._clock.now()):
            raise StoreFailure("circuit_open")
        cancelled = _cancellations()
        try:
            try:
                reply = await self._ask(words, block_s, self._targets(everywhere=everywhere, at=at))
            finally:
                if _cancellations() > cancelled:  # also where the library kept it to itself, as asyncio.wait_for may
                    raise asyncio.CancelledError
        except StoreFailure as failure:
            if failure.kind in _UNANSWERED:
                self.breaker.failed(self._clock.now(), self._chance.random())
            else:
                self.breaker.succeeded()
            raise
        except _ScriptUnknown:
            self.breaker.succeeded()
            raise
        except BaseException:
            self.breaker.gave_up(self._clock.now())
            raise
        self.breaker.succeeded()
        return reply

    async def _ask(self, words: Sequence[Any], block_s: float, options: Mapping[str, Any]) -> Any:  # noqa: ANN401  as above
        try:
            async with asyncio.timeout(self._options.timeout_s + block_s):
                if block_s:
                    return await self._connection.execute_command(*words, **options)
                async with self._turns:
                    if isinstance(words[0], tuple):
                        return await self._ask_together(words)
                    return await self._connection.execute_command(*words, **options)
        except theirs.NoScriptError as error:
            raise _ScriptUnknown from error
        except _ALL as error:
            raise translated(error) from error
        except RuntimeError as error:  # uvloop's way to say that the connection was cut while this was written to it
            if "closed" not in str(error):
                raise
            raise StoreFailure("unreachable", may_be_done=True) from error

    def _targets(self, *, everywhere: bool, at: str) -> dict[str, Any]:
        """Which servers of a cluster are asked, where the keys do not say it."""
        if not self.is_cluster or not (everywhere or at):
            return {}
        if everywhere:
            return {"target_nodes": RedisCluster.PRIMARIES}
        node = cast("RedisCluster", self._connection).get_node(node_name=at)
        if node is None:
            raise StoreFailure("unreachable", "a server left the cluster")
        return {"target_nodes": node}

    async def _ask_together(self, commands: Sequence[Any]) -> list[Any]:
        """Several commands in one message to each server."""
        if self.is_cluster:
            together: Any = cast("RedisCluster", self._connection).pipeline()
        else:
            together = cast("Redis", self._connection).pipeline(transaction=False)
        for command in commands:
            together.execute_command(*command)
        return cast("list[Any]", await together.execute())


def _cancellations() -> int:
    """How often whoever runs was told to end. Nobody is told twice, so none of it may be lost."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class _ScriptUnknown(Exception):
    """NOSCRIPT: the server was restarted, failed over or flushed its scripts."""

    unsure = False
    """An earlier try of the call was not answered."""


def translated(error: Exception) -> StoreFailure:
    """What the library's error means. Its text is not repeated: of replies, only the code in front."""
    kind = next(kind for type_, kind in _KINDS if isinstance(error, type_))
    if "luster mode is not enabled" in str(error):
        return StoreFailure("unfit", "it is no cluster: the address must begin with redis:// or rediss://")
    if kind != "refused":
        return StoreFailure(kind, may_be_done=kind in {"timeout", "unreachable"})
    if "ACL failure in script" in str(error):  # NOPERM in Redis, ERR in Valkey
        return StoreFailure("denied")
    code = str(error).partition(" ")[0].lstrip("-")
    code = code if code.isalpha() and code.isupper() else ""
    return StoreFailure(_BY_CODE.get(code, "refused"), "" if code in _BY_CODE else code)


def connect(address: Address, options: ClientOptions) -> Connection:
    """The library's client for an address; it connects at the first call.

    Its own retries are off: ours know the breaker. RESP2, so that replies have one shape on every server.
    """
    common: dict[str, Any] = {
        "username": address.user,
        "password": address.password,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": options.timeout_s,
        "protocol": 2,
        "max_connections": CONNECTIONS_MAX,
    }
    if address.kind == "unix":
        return Redis(unix_socket_path=address.path, db=address.database, **common)
    if address.tls:
        common |= {"ssl": True, "ssl_ca_certs": address.ca}
    if address.kind == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in address.hosts], **common)
    if address.kind == "sentinel":
        return _Watched(address, options, common)
    ((host, port),) = address.hosts
    return Redis(host=host, port=port, db=address.database, **common)


class _Watched:
    """The primary that sentinels name; closes the connections to them, too, which the library does not."""

    def __init__(self, address: Address, options: ClientOptions, common: dict[str, Any]) -> None:
        own = {"socket_timeout": options.timeout_s, "socket_connect_timeout": options.timeout_s}
        self._sentinels = Sentinel(address.hosts, sentinel_kwargs=own, **common)  # type: ignore[no-untyped-call]
        self._primary: Connection = self._sentinels.master_for(address.service or "", db=address.database)

    async def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401  as in the protocol
        return await self._primary.execute_command(*args, **options)

    def pipeline(self, *, transaction: bool) -> Any:  # noqa: ANN401  as in the library
        """Several commands in one message to the primary."""
        return cast("Redis", self._primary).pipeline(transaction=transaction)

    async def aclose(self) -> None:
        await self._primary.aclose()
        await self._sentinels.aclose()
