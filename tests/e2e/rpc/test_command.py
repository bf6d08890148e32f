"""`kvindexer serve` from outside: its gRPC port beside REST."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys

import grpc
import httpx

from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.rpc import DEADLINE_S


def _serve(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "indexer", "serve", "--port", "0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _banner(service: subprocess.Popen[str]) -> str:
    assert service.stdout is not None
    return service.stdout.readline()


async def test_both_faces_tell_of_the_same_sources_and_a_signal_ends_both() -> None:
    """A call that waits when the signal comes is answered; the exit code is 0."""
    service = _serve("--grpc-port", "0", "--source", "a=tcp://127.0.0.1:9,model=m,blocks=9")
    banner = _banner(service)
    rest, rpc = re.search(r"http://[0-9.:]+", banner), re.search(r"grpc://([0-9.:]+)", banner)
    assert rest is not None
    assert rpc is not None
    assert rest.start() < rpc.start()
    async with grpc.aio.insecure_channel(rpc[1]) as channel, httpx.AsyncClient(base_url=rest[0]) as client:
        stub = KvIndexerStub(channel)
        listed = await stub.ListSources(pb.ListSourcesRequest(), timeout=DEADLINE_S)
        assert ["a"] == [source.pod for source in listed.sources]
        assert ["a"] == [source["pod"] for source in (await client.get("/v1/sources")).json()["sources"]]
        stream = stub.LookupStream(timeout=DEADLINE_S)
        await stream.write(pb.LookupRequest(model="m", token_ids=[1]))
        assert "m" == (await stream.read()).answer.model
        await stream.write(pb.LookupRequest(model="m", token_ids=[1], min_sequence={"a": 1}, timeout_ms=19_000))
        await stub.Lookup(
            pb.LookupRequest(model="m", token_ids=[1]), timeout=DEADLINE_S
        )  # it came behind: that is read
        assert 'kvindexer_lookups_total{api="grpc"' in (await client.get("/metrics")).text
        service.send_signal(signal.SIGTERM)
        assert (await stream.read()).HasField("answer")
    said, errors = await asyncio.to_thread(service.communicate, timeout=DEADLINE_S)
    assert (0, "") == (service.returncode, said)
    of_the_service = [line for line in errors.splitlines() if " source a: " not in line]  # one without replay: a remark
    assert ["told", "stopped"] == [line.split(": ", 1)[1].split()[0] for line in of_the_service]


async def test_grpc_may_be_off() -> None:
    """Then only REST listens."""
    service = _serve("--grpc-port", "off")
    assert "grpc" not in _banner(service)
    service.terminate()
    await asyncio.to_thread(service.communicate, timeout=DEADLINE_S)
    assert 0 == service.returncode


async def test_a_port_in_use_ends_the_start_with_one_line() -> None:
    """It names the setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        service = _serve("--grpc-port", str(port))
        said, errors = await asyncio.to_thread(service.communicate, timeout=DEADLINE_S)
    assert (2, "") == (service.returncode, said)
    assert f"kvindexer: server.grpc_port: {port} on 127.0.0.1 is in use by another process\n" == errors
