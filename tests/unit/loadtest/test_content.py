"""Contents follow from keys alone: two processes agree without a word."""

from loadtest.content import BLOCK, VOCABULARY, Document

SYSTEM = Document(key=1, blocks=3)
TURN = Document(key=2, blocks=2, parent=SYSTEM)


def test_contents_follow_from_the_key() -> None:
    """Equal keys are equal contents, other keys are others."""
    assert Document(1, 3).tokens().tolist() == SYSTEM.tokens().tolist()
    assert Document(1, 3).hashes() == SYSTEM.hashes()
    assert Document(3, 3).tokens().tolist() != SYSTEM.tokens().tolist()
    assert int(SYSTEM.tokens().max()) < VOCABULARY


def test_a_prompt_begins_with_what_it_follows() -> None:
    """A conversation's prompt is its system prompt and its own part."""
    whole = TURN.prompt().tolist()

    assert SYSTEM.tokens().tolist() == whole[: 3 * BLOCK]
    assert TURN.tokens().tolist() == whole[3 * BLOCK :]
    assert 5 == TURN.depth
    assert SYSTEM.hashes()[-1] == TURN.parent_hash()
    assert SYSTEM.parent_hash() is None


def test_hashes_never_meet() -> None:
    """Over documents and positions, and they fill 64 bits as an engine's do."""
    hashes = [each for key in range(200) for each in Document(key, 100).hashes()]

    assert len(hashes) == len(set(hashes))
    assert 0 not in hashes
    assert max(hashes) > 1 << 63
