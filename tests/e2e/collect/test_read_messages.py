"""Messages off a real socket: what counts as one."""

from __future__ import annotations

import zmq

from indexer.collect.messages import read_messages
from indexer.collect.options import CollectOptions
from indexer.model import RawBatch


def test_an_endless_topic_is_no_message() -> None:
    """It would be kept and shown; what stands beside it is read."""
    options = CollectOptions()
    longest = b"x" * options.topic_max_bytes
    with zmq.Context() as context, context.socket(zmq.PAIR) as there, context.socket(zmq.PAIR) as here:
        here.bind("inproc://messages")
        there.connect("inproc://messages")
        for topic in (b"", longest + b"x", longest):
            there.send_multipart([topic, bytes(8), b"p"])

        assert ([RawBatch(b"", 0, b"p"), RawBatch(longest, 0, b"p")], 1, True) == read_messages(here, options)
