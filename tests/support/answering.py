"""Servers that answer whatever a test says, byte by byte if it says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that does that with every connection."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener, contextlib.ExitStack() as stack:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while not over.is_set():
                    connection, _ = listener.accept()
                    stack.callback(connection.close)
                    thread = threading.Thread(target=turn, args=(connection,))
                    thread.start()
                    stack.callback(thread.join)

        def turn(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                answer(connection, over)

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def trickling(connection: socket.socket, over: threading.Event) -> None:
    """A header that never ends, a byte at a time: no single read ever waits for long."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-endless: ")
    while not over.wait(0.01):
        connection.sendall(b"x")


def trickling_body(connection: socket.socket, over: threading.Event) -> None:
    """Blanks before the JSON, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while not over.wait(0.01):
        connection.sendall(b" ")


def saying(said: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Once it was asked, these bytes, and the end."""

    def answer(connection: socket.socket, _over: threading.Event) -> None:
        connection.recv(65_536)
        connection.sendall(said)
        connection.shutdown(socket.SHUT_RDWR)

    return answer


def ok(body: bytes) -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
