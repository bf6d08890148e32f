"""An engine that connects to the service, as those do that are told one address for all (`--source-bind`)."""

from __future__ import annotations

from typing import Final

import msgspec
import zmq

from tests.support.core_events import BLOCK, TS, stored

FIRST_TOKEN: Final = 1_000_000
"""Above those of recordings: nobody else holds any of them."""


def tokens_of(blocks: int) -> list[int]:
    """The first blocks of the one prompt that such engines announce."""
    return list(range(FIRST_TOKEN, FIRST_TOKEN + blocks * BLOCK))


class ConnectingEngine:
    """Announces block after block of one prompt, one a batch. It connects, and connects again, by itself.

    What is published before it is connected waits in the socket.
    """

    def __init__(self, endpoint: str, pod: str, model: str) -> None:
        self._topic = f"kv@{pod}@{model}".encode()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self.said = 0
        """Batches, also those that were lost."""

    def publish(self, count: int) -> int:
        """So many batches; the number of the last one."""
        for number in range(self.said, self.said + count):
            tokens = tokens_of(number + 1)[-BLOCK:]
            event = stored([number + 1], tokens, parent=number or None)
            payload = msgspec.msgpack.encode([TS + number, [event], 0])
            self._socket.send_multipart([self._topic, number.to_bytes(8, "big"), payload])
        self.said += count
        return self.said - 1

    def lose(self, count: int) -> None:
        """So many batches that never leave."""
        self.said += count

    def close(self) -> None:
        """Say no more."""
        self._socket.close()
        self._context.term()
