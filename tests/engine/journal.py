"""What the engine has published, read from its replay socket.

The engine's scheduler hands a step's events to a publishing thread before it hands out the step's tokens. That thread
turns in a loop: one replay request, then one batch from its queue. So when two replays, one after the other, find the
same newest batch, the queue was empty in between: every event of every answered request is out.
"""

from collections import Counter

import msgspec
import zmq

END = 2**64 - 1
"""Sequence number of the end marker (-1 in eight bytes)."""

REPLY_DEADLINE_MS = 10_000


class Journal:
    """One engine process's batches so far: the newest sequence, and how many events of each kind."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], replay_endpoint: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(replay_endpoint)
        self._newest: int | None = None
        self._events: Counter[str] = Counter()
        self._live: Counter[int] = Counter()

    def close(self) -> None:
        """The engine it reads from is gone, or the suite ends."""
        self._socket.close()

    def settled(self) -> int | None:
        """Newest sequence once the engine has nothing left to publish. None: no batch yet.

        Only true while no request is running.
        """
        self._follow()
        while True:
            before = self._newest
            self._follow()
            if self._newest == before:
                return before

    @property
    def events(self) -> Counter[str]:
        """Blocks by kind of event, clears, and `BlockStored again` for stores of a hash that is held already."""
        return self._events.copy()

    def _follow(self) -> None:
        first = 0 if self._newest is None else self._newest + 1
        self._socket.send_multipart([b"", first.to_bytes(8, "big")])
        while True:
            assert self._socket.poll(REPLY_DEADLINE_MS), (
                f"no end of a replay from {first} within {REPLY_DEADLINE_MS} ms"
            )
            *_, sequence_frame, payload = self._socket.recv_multipart()
            sequence = int.from_bytes(sequence_frame, "big")
            if sequence == END:
                return
            # A hole here would make every number below worthless, so the suite stops on it.
            assert sequence == (0 if self._newest is None else self._newest + 1)
            self._newest = sequence
            self._count(msgspec.msgpack.decode(payload))

    def _count(self, batch: list[list[dict[str, object]]]) -> None:
        for event in batch[1]:
            kind = str(event["type"])
            hashes = event.get("block_hashes", [])
            assert isinstance(hashes, list)
            self._events[kind] += len(hashes) or 1
            if kind == "BlockStored":
                self._events["BlockStored again"] += sum(1 for block in hashes if self._live[block] > 0)
                self._live.update(hashes)
            elif kind == "BlockRemoved":
                self._live.subtract(hashes)
            else:
                self._live.clear()
