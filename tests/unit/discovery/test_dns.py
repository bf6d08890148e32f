"""Discovery by names, beside a name server on real sockets: when a picture is told, and what never changes one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING

import pytest

from indexer.clock import SystemClock
from indexer.discovery import dns as discovery
from indexer.discovery import name_servers
from indexer.discovery.dns import DnsDiscoverer
from indexer.discovery.event_endpoints import Endpoints
from indexer.discovery.names import NameMemory
from indexer.settings.discovery import Dns, DnsName
from tests.support.busy_engine import busy_engine, whole
from tests.support.collecting import until
from tests.support.name_server import NameServer, name_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from indexer.discovery.found import Picture

NAME = "vllm.ns.svc"
SRV = "_kv-events._tcp.vllm.ns.svc"
PLAIN = DnsName(family="ipv4")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are noticed soon, and asked about again soon."""
    monkeypatch.setattr(name_servers, "TRY_S", 0.1)
    monkeypatch.setattr(discovery, "FIRST_REST_S", 0.05)


class Told:
    """What a discoverer told."""

    def __init__(self, discoverer: DnsDiscoverer) -> None:
        self.discoverer = discoverer
        self.pictures: list[Picture] = []

    @property
    def ready(self) -> dict[str, bool]:
        """Of the latest picture."""
        return {str(key): found.ready for key, found in self.pictures[-1].found.items()} if self.pictures else {}

    async def until_ready(self, **ready: bool) -> None:
        """The latest picture says so, by the last number of the address."""
        wanted = {f"10.0.0.{number.removeprefix('n')}:8000": is_ready for number, is_ready in ready.items()}
        await until(lambda: bool(self.pictures) and wanted == self.ready, f"{wanted}, not {self.ready}")


@contextlib.asynccontextmanager
async def _discovering(server: NameServer, names: dict[str, DnsName], forget_s: float = 60.0) -> AsyncIterator[Told]:
    settings = Dns(names=names, servers=(server.address,), refresh_min_s=0.1, refresh_max_s=0.1, forget_s=forget_s)
    told = Told(DnsDiscoverer(settings, SystemClock(), random.Random(1)))
    running = asyncio.create_task(told.discoverer.run(told.pictures.append))  # noqa: TID251  ends with the block
    try:
        yield told
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def test_addresses_come_and_go() -> None:
    """Appear, vanish, return, and are forgotten; an equal answer tells nothing."""

    async def watch() -> None:
        with name_server() as server:
            server.put(NAME, "A", "10.0.0.1", "10.0.0.2")
            async with _discovering(server, {NAME: PLAIN}, forget_s=0.5) as told:
                await told.until_ready(n1=True, n2=True)
                asked = len(server.asked)
                await until(lambda: len(server.asked) > asked + 2, "asked again")
                assert 1 == len(told.pictures)
                server.put(NAME, "A", "10.0.0.2", "10.0.0.3")
                await told.until_ready(n1=False, n2=True, n3=True)
                server.put(NAME, "A", "10.0.0.1", "10.0.0.3")
                await told.until_ready(n1=True, n2=False, n3=True)
                server.drop(NAME)
                await told.until_ready()
                assert "no address" in told.pictures[-1].remarks[NAME]

    asyncio.run(watch())


@pytest.mark.parametrize("fault", ["codes", "silent", "garbage"])
def test_a_server_that_fails_changes_nothing(fault: str) -> None:
    """It is remarked on, and what it says when it is back counts."""

    async def watch() -> None:
        with name_server() as server:
            server.put(NAME, "A", "10.0.0.1")
            async with _discovering(server, {NAME: PLAIN}, forget_s=0.0) as told:
                await told.until_ready(n1=True)
                if fault == "codes":
                    server.codes[""] = "SERVFAIL"
                else:
                    getattr(server, fault).add("")
                server.put(NAME, "A", "10.0.0.2")
                await until(lambda: NAME in told.pictures[-1].remarks, "a remark")
                assert {"10.0.0.1:8000": True} == told.ready
                for faults in (server.codes, server.silent, server.garbage):
                    faults.clear()
                await told.until_ready(n1=False, n2=True)
                await told.until_ready(n2=True)
                assert {} == told.pictures[-1].remarks
                assert told.discoverer.failures.total() > 0

    asyncio.run(watch())


def test_a_server_that_dies_and_is_back() -> None:
    """The same port, other addresses."""

    async def watch() -> None:
        server = NameServer()
        server.put(NAME, "A", "10.0.0.1")
        with name_server(server):
            running = contextlib.AsyncExitStack()
            told = await running.enter_async_context(_discovering(server, {NAME: PLAIN}))
            await told.until_ready(n1=True)
        async with running:
            await until(lambda: told.discoverer.failures["not_reached"] > 1, "the server is gone")
            assert {"10.0.0.1:8000": True} == told.ready
            server.put(NAME, "A", "10.0.0.1", "10.0.0.2")
            with name_server(server):
                await told.until_ready(n1=True, n2=True)

    asyncio.run(watch())


def test_the_first_picture_is_whole() -> None:
    """Nothing is told while one family, or one name, was never answered."""

    async def watch() -> None:
        with name_server() as server:
            server.put(NAME, "A", "10.0.0.1")
            server.put("other", "A", "10.0.0.2")
            server.codes["AAAA"] = "SERVFAIL"
            async with _discovering(server, {NAME: DnsName(), "other": PLAIN}) as told:
                await until(lambda: told.discoverer.failures["server_failure"] > 2, "asked again")
                assert [] == told.pictures
                del server.codes["AAAA"]
                await told.until_ready(n1=True, n2=True)
                server.codes["AAAA"] = "SERVFAIL"
                server.put(NAME, "A", "10.0.0.3")
                await told.until_ready(n1=False, n2=True, n3=True)

    asyncio.run(watch())


def test_service_records_with_and_without_addresses_beside() -> None:
    """Targets are asked for only where their addresses did not come along."""

    async def watch() -> None:
        with name_server() as server:
            server.put(SRV, "SRV", "0 50 7000 vllm-0.vllm.ns.", "0 50 7000 vllm-1.vllm.ns.")
            server.beside("vllm-0.vllm.ns", "A", "10.0.0.1")
            server.put("vllm-1.vllm.ns", "A", "10.0.0.2")
            async with _discovering(server, {SRV: DnsName(kind="srv", family="ipv4")}) as told:
                await told.until_ready(n1=True, n2=True)
                descriptors = [each.descriptor for each in told.pictures[-1].found.values()]
                assert ["tcp://10.0.0.1:7000", "tcp://10.0.0.2:7000"] == [each.endpoint for each in descriptors]
                assert ["vllm-0.vllm.ns", "vllm-1.vllm.ns"] == [each.aliases[0] for each in descriptors]
                assert {"vllm-1.vllm.ns"} == {name for _, name, kind in server.asked if kind == "A"}
                server.codes["SRV"] = "SERVFAIL"
                await until(lambda: SRV in told.pictures[-1].remarks, "a remark")
                assert {"10.0.0.1:8000": True, "10.0.0.2:8000": True} == told.ready
                server.codes.clear()
                server.put(SRV, "SRV", "0 50 7000 vllm-1.vllm.ns.")
                await told.until_ready(n1=False, n2=True)

    asyncio.run(watch())


def test_a_new_target_that_is_not_answered_holds_up_nothing() -> None:
    """What else is known goes on being told."""

    async def watch() -> None:
        with name_server() as server:
            server.put(SRV, "SRV", "0 50 7000 a.ns.")
            server.beside("a.ns", "A", "10.0.0.1")
            server.codes["A"] = "SERVFAIL"
            async with _discovering(server, {SRV: DnsName(kind="srv", family="ipv4")}) as told:
                await told.until_ready(n1=True)
                server.put(SRV, "SRV", "0 50 7000 b.ns.")
                await told.until_ready(n1=False)
                assert "failed" in told.pictures[-1].remarks[SRV]
                server.put("b.ns", "A", "10.0.0.2")
                del server.codes["A"]
                await told.until_ready(n1=False, n2=True)

    asyncio.run(watch())


def test_engines_are_asked_where_nobody_knows_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not tell is no source, and is asked again; what one told stands while it is away."""
    monkeypatch.setattr(discovery, "ASKED_AGAIN_S", 0.0)

    async def watch() -> None:
        with name_server() as server:
            async with busy_engine() as engine:
                port = int(engine.address.rpartition(":")[2])
                entry = DnsName(family="ipv4", port=port, events_port=0)
                engine.answer = whole("{}")
                server.put(NAME, "A", "127.0.0.1")
                async with _discovering(server, {NAME: entry}) as told:
                    await until(lambda: bool(told.pictures), "a picture")
                    assert "names no source" in told.pictures[-1].remarks[engine.address]
                    ranks = {str(rank): {"endpoint": f"tcp://*:{4_000 + rank}"} for rank in range(2)}
                    engine.answer = whole(json.dumps(ranks))
                    await until(lambda: 2 == len(told.ready), "its ranks")
                    engine.answer = whole("no JSON")
                    failures = told.discoverer.failures["engine"]
                    await until(lambda: told.discoverer.failures["engine"] > failures + 1, "asked again")
                    endpoints = [each.descriptor.endpoint for each in told.pictures[-1].found.values()]
                    assert ["tcp://127.0.0.1:4000", "tcp://127.0.0.1:4001"] == endpoints

    asyncio.run(watch())


def test_who_is_missing_is_told_before_engines_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer is waited for; what the name server said meanwhile is not."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def tells(address: str) -> dict[int, Endpoints]:
        if address.startswith("10.0.0.3"):
            asked.set()
            await may_answer.wait()
        return {0: Endpoints(f"tcp://{address.partition(':')[0]}:4000", None)}

    monkeypatch.setattr(discovery, "event_sources", tells)

    async def watch() -> None:
        with name_server() as server:
            server.put(NAME, "A", "10.0.0.1", "10.0.0.2")
            async with _discovering(server, {NAME: DnsName(family="ipv4", events_port=0)}) as told:
                await told.until_ready(n1=True, n2=True)
                server.put(NAME, "A", "10.0.0.2", "10.0.0.3")
                await asked.wait()
                assert {"10.0.0.1:8000": False, "10.0.0.2:8000": True} == told.ready
                assert {} == told.pictures[-1].remarks
                may_answer.set()
                await told.until_ready(n1=False, n2=True, n3=True)

    asyncio.run(watch())


def test_the_time_to_live_says_when_to_ask_again() -> None:
    """Within its bounds, of all answers the least."""

    async def watch() -> None:
        with name_server() as server:
            server.put(NAME, "A", "10.0.0.1")
            server.ttl_s = 7
            discoverer = DnsDiscoverer(
                Dns(names={NAME: PLAIN}, servers=(server.address,)), SystemClock(), random.Random(1)
            )
            memory = NameMemory(NAME, PLAIN, forget_s=60.0)
            rests = []
            for ttl_s in (0, 7, 3_600):
                server.ttl_s = ttl_s
                rests.append(await discoverer._round(memory))
            server.codes[""] = "SERVFAIL"
            assert [5.0, 7, 30.0, None] == [*rests, await discoverer._round(memory)]

    asyncio.run(watch())


def test_begun_again_it_tells_again() -> None:
    """Another process watched meanwhile: what was known then says nothing."""

    async def watch() -> None:
        with name_server() as server:
            server.put(NAME, "A", "10.0.0.1")
            settings = Dns(names={NAME: PLAIN}, servers=(server.address,), refresh_min_s=0.1, refresh_max_s=0.1)
            discoverer = DnsDiscoverer(settings, SystemClock(), random.Random(1))
            for _ in range(2):
                pictures: list[Picture] = []
                running = asyncio.create_task(discoverer.run(pictures.append))  # noqa: TID251  ends below
                await until(lambda told=pictures: bool(told), "a picture")
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                assert [("10.0.0.1:8000", 0)] == [*pictures[0].found]
                server.put(NAME, "A", "10.0.0.1")
            assert discoverer.heard_at is not None

    asyncio.run(watch())
