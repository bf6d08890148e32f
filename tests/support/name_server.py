"""A DNS server on real sockets, UDP and TCP, that answers as a test says. Messages are made by dnspython, not by us."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TTL_S: Final = 1
CHAIN_MAX: Final = 8


class NameServer:
    """`port` is that of both transports. Faults are by type of record, "" for all; they stand until taken away."""

    def __init__(self) -> None:
        self.port = 0
        self.ttl_s = TTL_S
        self._records: dict[tuple[str, str], list[str]] = {}
        self._more: list[tuple[str, str, list[str]]] = []
        self.codes: dict[str, str] = {}
        """`SERVFAIL` and the like, instead of an answer."""
        self.silent: set[str] = set()
        """Nothing is answered."""
        self.cut: set[str] = set()
        """Over UDP no record is sent, and that it was cut is said."""
        self.garbage: set[str] = set()
        """Bytes that are no message, behind the right number."""
        self.asked: list[tuple[str, str, str]] = []
        """Transport, name and type of each question."""

    @property
    def address(self) -> str:
        """For the settings."""
        return f"127.0.0.1:{self.port}"

    def put(self, name: str, kind: str, *records: str) -> None:
        """These are the records of that name and type from now on. None: there is the name, and no such record."""
        self._records[name, kind] = list(records)

    def drop(self, name: str) -> None:
        """There is no such name any more."""
        self._records = {key: records for key, records in self._records.items() if key[0] != name}

    def beside(self, name: str, kind: str, *records: str) -> None:
        """These go along in the additional section of all answers."""
        self._more.append((name, kind, list(records)))

    def count(self, kind: str) -> int:
        """Questions of that type."""
        return sum(asked == kind for _, _, asked in self.asked)

    def answer(self, data: bytes, transport: str) -> bytes | None:
        """To one question; None: none."""
        query = dns.message.from_wire(data)
        asked = query.question[0]
        name, kind = asked.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(asked.rdtype)
        self.asked.append((transport, name, kind))
        faults = {kind, ""}
        if faults & self.silent:
            return None
        if faults & self.garbage:
            return data[:2] + b"\xff" * 40
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        code = next((self.codes[fault] for fault in faults if fault in self.codes), None)
        if code is not None:
            response.set_rcode(dns.rcode.from_text(code))
        elif transport == "udp" and faults & self.cut:
            response.flags |= dns.flags.TC
        else:
            self._fill(response, name, kind)
        try:
            return response.to_wire(max_size=query.payload or 512 if transport == "udp" else 65_535)
        except dns.exception.TooBig:
            response.answer, response.additional = [], []
            response.flags |= dns.flags.TC
            return response.to_wire()

    def _fill(self, response: dns.message.Message, name: str, kind: str) -> None:
        for _ in range(CHAIN_MAX):
            alias = self._records.get((name, "CNAME"))
            if not alias:
                break
            response.answer.append(self._set(name, "CNAME", alias))
            name = alias[0].rstrip(".")
        if not any(known == name for known, _ in self._records):
            response.set_rcode(dns.rcode.NXDOMAIN)
            return
        records = self._records.get((name, kind))
        if records:
            response.answer.append(self._set(name, kind, records))
        for beside, its_kind, its_records in self._more:
            response.additional.append(self._set(beside, its_kind, its_records))

    def _set(self, name: str, kind: str, records: Sequence[str]) -> dns.rrset.RRset:
        return dns.rrset.from_text_list(dns.name.from_text(name), self.ttl_s, "IN", kind, records)


@contextlib.contextmanager
def name_server(server: NameServer | None = None) -> Iterator[NameServer]:
    """One until the block ends; with the same `server` given again it is back on the same port."""
    server = server or NameServer()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind(("127.0.0.1", server.port))
        server.port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", server.port))
        tcp.listen()
        over = threading.Event()
        threads = [
            threading.Thread(target=_serve_udp, args=(server, udp, over), name="dns udp"),
            threading.Thread(target=_serve_tcp, args=(server, tcp, over), name="dns tcp"),
        ]
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            over.set()
            for thread in threads:
                thread.join()


def _serve_udp(server: NameServer, sock: socket.socket, over: threading.Event) -> None:
    sock.settimeout(0.02)
    while not over.is_set():
        try:
            data, caller = sock.recvfrom(4_096)
        except TimeoutError:
            continue
        answer = server.answer(data, "udp")
        if answer is not None:
            sock.sendto(answer, caller)


def _serve_tcp(server: NameServer, sock: socket.socket, over: threading.Event) -> None:
    sock.settimeout(0.02)
    while not over.is_set():
        try:
            connection, _ = sock.accept()
        except TimeoutError:
            continue
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            size = int.from_bytes(_exactly(connection, 2), "big")
            answer = server.answer(_exactly(connection, size), "tcp")
            if answer is not None:
                connection.sendall(len(answer).to_bytes(2, "big") + answer)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data
