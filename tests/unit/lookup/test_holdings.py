"""The bare facts: what is asked of them that a lookup is not. That both agree, every lookup of these tests checks."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.hashing.chain import local_hashes
from schemas.lookup import Holding, LookupQuery
from tests.support.core import Core
from tests.support.core_events import BLOCK, prompt, stored, u32


def _mixed() -> Core:
    """The same prompt in blocks of 4 tokens and of 8."""
    core = Core()
    core.engine("four").say(stored([1, 2, 3, 4], prompt(4)))
    core.engine("eight").say(stored([1, 2], prompt(4), block_size=2 * BLOCK))
    return core


def test_a_block_size_leaves_out_engines_of_another() -> None:
    """Beside tokens as beside hashes; without, everybody is asked."""
    lookup = _mixed().lookup

    def holders(block_size: int | None) -> dict[str, int]:
        found = lookup.holdings(LookupQuery(tokens=u32(prompt(4)), block_size=block_size))
        return {each.pod: each.gpu for each in found.held}

    assert {"four": 16, "eight": 16} == holders(None)
    assert {"four": 16} == holders(BLOCK)
    assert {} == holders(32)


def test_local_hashes_are_looked_up_at_the_block_size_of_each_engine() -> None:
    """A block of one size never has the hash of a block of another: who asks need not say which."""
    lookup = _mixed().lookup

    def holders(size: int) -> dict[str, int]:
        hashes = [int.from_bytes(digest, "big") for digest in local_hashes(u32(prompt(4)), size)]
        found = lookup.holdings(LookupQuery(block_hashes=hashes, scheme="dynamo"))
        return {each.pod: each.gpu for each in found.held}

    assert {"four": 16} == holders(BLOCK)
    assert {"eight": 16} == holders(2 * BLOCK)


@given(st.lists(st.sampled_from(["GPU", "CPU", "STORAGE"]), min_size=1, max_size=6))
def test_tiers_are_cumulative(media: list[str]) -> None:
    """Each counts what the faster ones hold, too."""
    core = Core()
    engine = core.engine("pod")
    for i, medium in enumerate(media):
        engine.say(stored([i + 1], prompt(1, start=i * BLOCK), parent=i or None, medium=medium))
    core.ask(prompt(6))

    (held,) = core.lookup.holdings(LookupQuery(tokens=u32(prompt(6)))).held

    def prefix(*tiers: str) -> int:
        return BLOCK * next((i for i, medium in enumerate(media) if medium not in tiers), len(media))

    assert Holding("pod", 0, prefix("GPU"), prefix("GPU", "CPU"), BLOCK * len(media)) == held
