"""A block found by either hash, also while batches go on."""

from __future__ import annotations

from indexer.source_views import block_views
from tests.support.core import Core
from tests.support.core_events import prompt, removed, stored


def test_a_block_is_found_by_either_hash_with_its_parent() -> None:
    """And what comes and goes between the steps of the search does no harm."""
    core = Core()
    engine = core.engine("a")
    engine.say(stored([101, 102], prompt(2)))
    token_hashes = core.hashes(prompt(2))

    for wanted in (102, token_hashes[1]):
        steps = block_views(engine.sink.source, core.mirror, wanted)
        count = 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                (view,) = end.value
                break
            count += 1
            engine.say(stored([1_000 + count], prompt(1, 1_000 + count)))
            engine.say(removed(1_000 + count))
        assert (f"{102:016x}", f"{101:016x}", {"gpu": 1}) == (view.engine_hash, view.parent, view.copies)
        assert count > 1
