"""Run as a program: clients of every kind, each in the middle of something, that then do nothing any more.

`python -m tests.support.rude_clients DOOR ADDRESS [CA TOKEN]` says `held` when all are in place, and waits for its end,
which the test brings about, without a word. With CA and TOKEN the service has TLS and asks who calls.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

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
OPENINGS["uds"] = OPENINGS["https"] = OPENINGS["rest"]
OPENINGS["grpcs"] = OPENINGS["grpc"]

_ALPN: Final = {"https": "http/1.1", "grpcs": "h2"}
"""Doors behind TLS, and what is spoken there."""


class Key(NamedTuple):
    """What opens a service with TLS that asks who calls."""

    ca: str
    token: str

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """Of a call."""
        return [("authorization", f"Bearer {self.token}")]

    def channel(self, address: str) -> grpc.Channel:
        """One that shares its connection with no other."""
        credentials = grpc.ssl_channel_credentials(Path(self.ca).read_bytes())
        return grpc.secure_channel(address, credentials, options=_OWN)


_OWN: Final = [("grpc.use_local_subchannel_pool", 1)]


def plain_channel(address: str) -> grpc.Channel:
    """One that shares its connection with no other."""
    return grpc.insecure_channel(address, options=_OWN)


def _hello() -> bytes:
    """The beginning of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    shaking = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="x")
    with contextlib.suppress(ssl.SSLWantReadError):
        shaking.do_handshake()
    return outgoing.read()


HELLO: Final = _hello()
OPENINGS["tls"] = [*OPENINGS["rest"][:3], HELLO[:3], HELLO[:-20], HELLO]
OPENINGS["tls-grpc"] = [*OPENINGS["grpc"][:3], HELLO[:3], HELLO[:-20], HELLO]
"""What comes as it is to ports where TLS is spoken."""


def openings(door: str, key: Key | None = None) -> list[bytes]:
    """What clients of a door begin with; where tokens are asked for, they show one."""
    shown = b"" if key is None else b"authorization: Bearer %s\r\n" % key.token.encode()
    return [opening.replace(b"host: x\r\n", b"host: x\r\n" + shown) for opening in OPENINGS[door]]


def connect(door: str, address: str, key: Key | None = None) -> socket.socket:
    """A connection to that door, behind its handshake where it has one."""
    if door == "uds":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        return sock
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    if door not in _ALPN or key is None:
        return sock
    context = ssl.create_default_context(cafile=key.ca)
    context.set_alpn_protocols([_ALPN[door]])
    return context.wrap_socket(sock, server_hostname=host)


def _plain(door: str, address: str, key: Key | None) -> Iterator[socket.socket]:
    for opening in openings(door, key):
        for _ in range(EACH):
            sock = connect(door, address, key)
            sock.setblocking(False)
            if opening:
                with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                    sock.send(opening)  # as much as there is room for
            yield sock


def _calls(address: str, key: Key | None) -> Iterator[object]:
    """Streams that are opened, fed and not read, by a client that means it."""
    metadata = [] if key is None else key.metadata
    for _ in range(EACH):
        channel = plain_channel(address) if key is None else key.channel(address)
        stub = KvIndexerStub(channel)
        questions = [LookupRequest(token_bytes=TOKENS)] * 20
        stream = stub.LookupStream(iter(questions), metadata=metadata)
        yield channel, stream, stub.WatchSources(WatchSourcesRequest(), metadata=metadata)
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


def main(door: str, address: str, *opens: str) -> None:
    """Open all, say so, wait."""
    key = Key(*opens) if opens else None
    held: list[object] = [*_plain(door, address, key)]
    if door in {"grpc", "grpcs"}:
        held += _calls(address, key)
    if door == "zmq":
        held += _peers(address)
    print("held", len(held), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
