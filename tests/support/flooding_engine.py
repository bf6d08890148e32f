"""A process of its own that publishes a flood when told to, so that a test can kill or freeze it in the midst of it.

    python -m tests.support.flooding_engine COUNT [ENDPOINT]

binds, or connects to ENDPOINT under the topic of `pod`, prints the endpoint, waits for a line and a subscriber, sends
COUNT batches, prints `sent`, and one more for each further line, and serves until its input ends.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Final

import zmq

from tests.support.collect_batches import payload

CONNECTS: Final = 2
"""Arguments beyond which it connects."""

if __name__ == "__main__":
    publisher: zmq.Socket[bytes] = zmq.Context().socket(zmq.XPUB)
    publisher.set(zmq.SNDHWM, 100_000)
    publisher.set(zmq.LINGER, 0)
    topic = b""
    if len(sys.argv) > CONNECTS:
        topic = b"kv@pod@m"
        publisher.connect(sys.argv[2])
    else:
        publisher.bind("tcp://127.0.0.1:*")
    print(publisher.get_string(zmq.LAST_ENDPOINT), flush=True)
    sys.stdin.readline()
    publisher.recv()
    numbers = count()

    def send() -> None:
        """The next batch."""
        number = next(numbers)
        publisher.send_multipart([topic, number.to_bytes(8, "big"), payload(number, size_bytes=1_000)])

    for _ in range(int(sys.argv[1])):
        send()
    print("sent", flush=True)
    for _ in sys.stdin:
        send()
