"""A process with many engines that say one thing each when told to, and nothing after that.

    python -m tests.support.idle_engines COUNT

prints their endpoints, one a line, and `-`; at every line that it reads it publishes one batch of each and prints
`sent`; it ends with its input.
"""

from __future__ import annotations

import sys
from typing import Final

import zmq

from tests.support.core_events import payload, prompt, stored

BLOCKS: Final = 4


def main(count: int) -> None:
    """Until the input ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, count + 8)
    publishers = []
    for _ in range(count):
        publisher = context.socket(zmq.PUB)
        publisher.set(zmq.LINGER, 0)
        publisher.bind("tcp://127.0.0.1:*")
        print(publisher.get_string(zmq.LAST_ENDPOINT))
        publishers.append(publisher)
    print("-", flush=True)
    for sequence, _ in enumerate(sys.stdin):
        said = payload(
            stored([sequence * BLOCKS + block + 1 for block in range(BLOCKS)], prompt(BLOCKS, sequence * 100))
        )
        for publisher in publishers:
            publisher.send_multipart([b"", sequence.to_bytes(8, "big"), said])
        print("sent", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
