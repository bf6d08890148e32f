"""`kvindexer redis reset`: take away all that one namespace has in the store."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from api.cli.client import CommandFailed
from indexer.clock import SystemClock
from indexer.partitions.acquiring import replica_of
from indexer.settings import load
from indexer.store.address import Address, parse
from indexer.store.client import Client, ClientOptions
from indexer.store.failures import StoreFailure
from indexer.store.layout import replicas_key
from indexer.store.members import who_runs
from indexer.store.namespace import look_over, take_away

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from indexer.settings import Settings

PATIENCE_S: Final = 5.0
"""For one answer of the store: nobody's lookup waits."""
SILENT_MS: Final = 15_000
"""Who did not beat for so long does not run."""
INTERRUPTED: Final = 130


class Found(msgspec.Struct, frozen=True):
    """What is there before: keys, and replicas that seem to run, each with the sign of it."""

    keys: int
    running: dict[str, str]


def run(arguments: argparse.Namespace, stop_on_signal: Callable[[asyncio.Event], None]) -> int:
    """Look, ask, take away. Raises `CommandFailed` and `BadSettings`.

    `stop_on_signal` is called on the event loop, with the event that it sets.
    """
    settings = load(
        arguments.config,
        flags={"redis.url": arguments.redis_url, "redis.namespace": arguments.namespace},
        source_flags=[],
    )
    url, namespace = settings.redis.url, settings.redis.namespace
    if url is None:
        raise CommandFailed("redis.url: say where the store is: --redis-url, --config or KVINDEXER_REDIS__URL", 2)
    address = parse(url)
    if not arguments.yes and not sys.stdin.isatty():
        raise CommandFailed("--yes is needed where nobody can be asked", 2)
    with asyncio.Runner() as runner:
        found = runner.run(_look(address, settings))
        if found.running and not arguments.force:
            raise CommandFailed(_they_run(namespace, found.running))
    place = f"namespace {namespace} at {address.place}"
    if found.keys and not arguments.yes and not _is_meant(found, place):
        raise CommandFailed("nothing was removed")
    taking = _Taking(found.keys, place, shows=sys.stderr.isatty())
    with asyncio.Runner() as runner:
        taken_all = runner.run(_take(address, namespace, taking, stop_on_signal))
    taking.end()
    _print_done(arguments, namespace, place, taking.keys, complete=taken_all)
    return 0 if taken_all else INTERRUPTED


class _Taking:
    """How far it is, on a terminal."""

    def __init__(self, total: int, place: str, *, shows: bool) -> None:
        self.keys = 0
        self._total = total
        self._place = place
        self._shows = shows

    def add(self, keys: int) -> None:
        """So many more are gone."""
        self.keys += keys
        if self._shows:
            print(f"\r{self.keys:,} of {self._total:,} keys of {self._place} removed", end="", file=sys.stderr)

    def end(self) -> None:
        """Nothing more comes on that line."""
        if self._shows:
            print(file=sys.stderr)


def _client(address: Address) -> Client:
    return Client(address, ClientOptions(timeout_s=PATIENCE_S), SystemClock(), random.SystemRandom())


async def _look(address: Address, settings: Settings) -> Found:
    client = _client(address)
    namespace = settings.redis.namespace
    try:
        overview = await look_over(client, namespace)
        running = {replica: "holds a lease" for token in overview.leases if (replica := replica_of(token))}
        for replica, age_ms in (await who_runs(client, replicas_key(namespace))).items():
            if age_ms < SILENT_MS:
                running[replica] = f"seen {max(0, age_ms) / 1000:.1f} s ago"
    except StoreFailure as failure:
        raise CommandFailed(f"{address.place}: {failure}") from failure
    finally:
        await client.close()
    return Found(overview.keys, running)


async def _take(
    address: Address, namespace: str, taking: _Taking, stop_on_signal: Callable[[asyncio.Event], None]
) -> bool:
    """True when all is gone, False when a signal came first."""
    stop = asyncio.Event()
    stop_on_signal(stop)
    taking.add(0)
    client = _client(address)
    try:
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(_told(take_away(client, namespace, taking.add)), name="take away")
            stopping = tasks.create_task(stop.wait(), name="signal")
            await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
            work.cancel()
            stopping.cancel()
    finally:
        await client.close()
    if work.cancelled():
        return False
    failure = work.result()
    if failure is not None:
        taking.end()
        raise CommandFailed(
            f"{address.place}: {failure}; {taking.keys:,} keys are gone, run it again to remove the rest"
        )
    return True


async def _told(work: Coroutine[None, None, None]) -> StoreFailure | None:
    """What kept it from being done."""
    try:
        await work
    except StoreFailure as failure:
        return failure
    return None


def _they_run(namespace: str, running: dict[str, str]) -> str:
    named = ", ".join(f"{replica} ({sign})" for replica, sign in sorted(running.items()))
    return (
        f"replicas of namespace {namespace} run: {named}; stop them first: they would write what they know anew "
        "(--force removes it all the same)"
    )


def _is_meant(found: Found, place: str) -> bool:
    """Ask on the terminal."""
    print(
        f"This removes all {found.keys:,} keys of {place}: what is known of engines, and the sources that callers "
        "registered.",
        file=sys.stderr,
    )
    print("Remove them? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _print_done(arguments: argparse.Namespace, namespace: str, place: str, keys: int, *, complete: bool) -> None:
    if arguments.json:
        told = {"namespace": namespace, "removed": keys, "complete": complete}
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    elif complete:
        print(f"removed {keys:,} keys of {place}")
    if not complete:
        print(f"kvindexer: stopped: {keys:,} keys are gone, run it again to remove the rest", file=sys.stderr)
