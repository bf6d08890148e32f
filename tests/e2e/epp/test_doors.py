"""Who reaches the endpoint picker, how, and what a gateway that takes nothing can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from api.epp.limits import EppLimits
from api.server import ServerSettings
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import HttpBody, HttpHeaders, ProcessingRequest
from tests.support.callers import EVERY, gates
from tests.support.certificates import Authority
from tests.support.collecting import until
from tests.support.ext_proc import Stream, destination_of, epp_served
from tests.support.fake_node import FakeNode
from tests.support.http2_frames import message, unread
from tests.support.serving import served

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


async def test_it_is_served_with_the_certificate_of_all_faces(tmp_path: Path) -> None:
    """Whoever speaks without TLS is not heard."""
    authority = Authority(tmp_path)
    async with served(FakeNode(), ServerSettings(port=0, epp_port=0, tls=authority.tls())) as addresses:
        address = next(each.removeprefix("epps://") for each in addresses if each.startswith("epps://"))
        trusted = grpc.ssl_channel_credentials(authority.file.read_bytes())
        async with grpc.aio.secure_channel(address, trusted) as channel:
            stream = Stream(channel)
            await stream.headers(end=True)
            assert destination_of(await stream.said())
            await stream.ended()
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await Stream(channel).headers(end=True)


@pytest.mark.parametrize("anonymous", [True, False])
async def test_beside_a_tokens_file_it_is_there_only_where_that_is_said(tmp_path: Path, anonymous: bool) -> None:
    """Gateways show no token."""
    known = gates(tmp_path, ("a", EVERY, None), anonymous=anonymous)
    async with served(FakeNode(), ServerSettings(port=0, epp_port=0), gates=known) as addresses:
        assert anonymous == any(each.startswith("epp://") for each in addresses)


async def test_a_gateway_that_takes_nothing_keeps_nothing_here() -> None:
    """What was kept of the body is let go after a while; others never wait for it."""
    node = FakeNode()
    body = b'{"prompt": [1, 2, 3, 4], "pad": "' + b"x" * 100_000 + b'"}'
    limits = EppLimits(held_bytes=150_000, unread_wait_s=0.05)
    async with epp_served(node, limits) as address, unread(address) as frames:
        headers = ProcessingRequest(request_headers=HttpHeaders())
        whole = ProcessingRequest(request_body=HttpBody(body=body, end_of_stream=True))
        stream = frames.begin(PROCESS)
        await frames.send(stream, b"".join(message(each.SerializeToString()) for each in (headers, whole)))
        await until(lambda: node.limits_reached["limits.unread_wait_s"] == 1, "the picker to give up")
        async with grpc.aio.insecure_channel(address) as channel:
            other = Stream(channel)
            await other.headers()
            await other.body(body)
            assert destination_of(await other.said())
    assert {"limits.unread_wait_s": 1} == node.limits_reached
