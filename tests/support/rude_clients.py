"""Run as a program: clients of every kind, each in the middle of something, that then do nothing any more.

`python -m tests.support.rude_clients DOOR ADDRESS` says `held` when all are in place, and waits for its end, which the
test brings about, without a word.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

import grpc
import zmq

from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest, WatchSourcesRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub

if TYPE_CHECKING:
    from collections.abc import Iterator

EACH: Final = 10
"""Clients of each kind in one process."""
TOKENS: Final = struct.pack("<16384I", *range(16_384))
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ZMTP: Final = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(16) + b"\0" + bytes(31)
"""A ZeroMQ greeting, whole."""
_POST: Final = (
    b"POST /v1/%s HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n"
)

OPENINGS: Final[dict[str, list[bytes]]] = {
    "rest": [
        b"",
        b"POST /v1/loo",
        _POST % (b"lookup", 65_536) + TOKENS[:100],
        (_POST % (b"hash?block_size=1", len(TOKENS)) + TOKENS) * 20,  # answers of 300 KB that nobody reads
        (_POST % (b"lookup", len(TOKENS)) + TOKENS) * 5,
    ],
    "grpc": [b"", PREFACE[:10], PREFACE, PREFACE + b"\0\0\0\x04\0\0\0\0\0" + b"\0\x10\0\x01\x04\0\0\0\x01half"],
    "zmq": [b"", ZMTP[:9], ZMTP, ZMTP + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PU"],
}
OPENINGS["uds"] = OPENINGS["rest"]


def connect(door: str, address: str) -> socket.socket:
    """A plain connection to that door."""
    if door == "uds":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        return sock
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def _plain(door: str, address: str) -> Iterator[socket.socket]:
    for opening in OPENINGS[door]:
        for _ in range(EACH):
            sock = connect(door, address)
            sock.setblocking(False)
            if opening:
                with contextlib.suppress(BlockingIOError):
                    sock.send(opening)  # as much as there is room for
            yield sock


def _calls(address: str) -> Iterator[object]:
    """Streams that are opened, fed and not read, by a client that means it."""
    for _ in range(EACH):
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        stub = KvIndexerStub(channel)
        questions = [LookupRequest(token_bytes=TOKENS)] * 20
        yield channel, stub.LookupStream(iter(questions)), stub.WatchSources(WatchSourcesRequest())
        grpc.channel_ready_future(channel).result()


def _peers(address: str) -> Iterator[object]:
    """Real peers of the engines' socket: some of them wrong ones."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for kind in (zmq.PUB, zmq.XPUB, zmq.DEALER, zmq.SUB):
        for _ in range(EACH // 2):
            peer = context.socket(kind)
            peer.connect(f"tcp://{address}")
            if kind in {zmq.PUB, zmq.DEALER}:
                peer.send_multipart([b"nonsense", b"x", b"y"], flags=zmq.DONTWAIT)
            yield context, peer


def main(door: str, address: str) -> None:
    """Open all, say so, wait."""
    held: list[object] = [*_plain(door, address)]
    if door == "grpc":
        held += _calls(address)
    if door == "zmq":
        held += _peers(address)
    print("held", len(held), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
