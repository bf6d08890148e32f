"""What lies between a conversation's task and the session. The rest of the subscriber is sockets: tests/e2e/collect."""

from __future__ import annotations

import asyncio

from indexer.collect.commands import ReplayEnd
from indexer.collect.inbox import Inbox
from tests.support.collect_batches import batches


def test_the_inbox_keeps_order_and_makes_its_writer_wait() -> None:
    """Full: no room until something is taken out. The end of a conversation comes behind its replies."""
    replies = batches(0, 1)

    async def main() -> None:
        inbox = Inbox(limit_bytes=2 * len(replies[0].payload) + 1)
        inbox.put(1, replies)
        await inbox.room()
        inbox.put(1, replies)
        inbox.put(1, ReplayEnd.COMPLETE)
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(inbox.room(), name="writer")
            await asyncio.sleep(0)
            assert not writer.done()
            assert (1, replies) == inbox.take()
        assert writer.done()
        assert [(1, replies), (1, ReplayEnd.COMPLETE)] == [inbox.take(), inbox.take()]
        assert not inbox

    asyncio.run(main())
