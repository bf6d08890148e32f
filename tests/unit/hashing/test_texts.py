"""Known beginnings of texts: exactly what was accepted before, whatever follows, in bounded memory."""

from __future__ import annotations

import random
import struct

import pytest

from indexer.hashing import texts
from indexer.hashing.memo import CHUNK_TOKENS, chunk_digest
from indexer.hashing.texts import SLICE_BYTES, SLICES_MAX, TextMemo
from tests.support.core_events import u32

SALT = 9
HEAD = b'{"token_ids":['


def body_of(ids: list[int], separator: str = ",", tail: str = "]}") -> tuple[bytes, int, int]:
    """A body, and where its text begins and ends."""
    text = separator.join(map(str, ids)).encode()
    return HEAD + text + tail.encode(), len(HEAD), len(HEAD) + len(text)


def taught(ids: list[int], separator: str = ",") -> TextMemo:
    """A memory that saw this prompt."""
    memo = TextMemo(SALT)
    body, begin, end = body_of(ids, separator)
    memo.learn(body, begin, end, memo.beginning(body, begin, end), u32(ids))
    return memo


@pytest.mark.parametrize("separator", [",", ", ", " ,\n"])
@pytest.mark.parametrize("count", [1, 600, 5_000])
def test_a_known_beginning_is_whole_chunks(separator: str, count: int) -> None:
    """Their digests, and where they end in the text: right behind a comma."""
    draw = random.Random(7)
    ids = [draw.randrange(2**32) for _ in range(count)]
    memo = taught(ids, separator)
    body, begin, end = body_of([*ids, 5, 6], separator)

    known = memo.beginning(body, begin, end)

    chunks = len(known.digests)
    assert [chunk_digest(u32(ids[i * CHUNK_TOKENS : (i + 1) * CHUNK_TOKENS]), SALT) for i in range(chunks)] == (
        known.digests
    )
    rest = body[begin + known.resume : end].decode()
    assert [*ids, 5, 6][chunks * CHUNK_TOKENS :] == [int(number) for number in rest.split(",")]
    assert (count > CHUNK_TOKENS + SLICE_BYTES) <= (chunks > 0)


def test_another_text_is_not_known() -> None:
    """From the slice on in which it differs."""
    ids = list(range(100_000, 110_000))
    memo = taught(ids)
    body, begin, end = body_of([*ids[:3_000], 1, *ids[3_001:]])

    known = memo.beginning(body, begin, end)

    assert 0 < len(known.digests) <= 3_000 // CHUNK_TOKENS
    assert known.slices == (3_000 * 7) // SLICE_BYTES


def test_a_prompt_that_grows_is_learnt_bit_by_bit() -> None:
    """Each turn knows all of the turn before but its last, unfinished slice and chunk."""
    draw = random.Random(3)
    memo, ids = TextMemo(SALT), []
    for _ in range(12):
        before = len(ids)
        ids += [draw.randrange(200_000) for _ in range(draw.randrange(1, 3_000))]
        body, begin, end = body_of(ids)
        known = memo.beginning(body, begin, end)
        start = len(known.digests) * CHUNK_TOKENS
        assert before - CHUNK_TOKENS - SLICE_BYTES < start <= before
        memo.learn(body, begin, end, known, u32(ids[start:]))


def test_what_does_not_add_up_is_not_learnt() -> None:
    """Fewer or more tokens than commas say."""
    ids = list(range(5_000))
    body, begin, end = body_of(ids)
    memo = TextMemo(SALT)
    for wrong in (ids[:-1], [*ids, 1], []):
        memo.learn(body, begin, end, memo.beginning(body, begin, end), u32(wrong))

    assert ([], 0, 0) == memo.beginning(body, begin, end)[:3]


def test_processes_do_not_share_digests() -> None:
    """Nobody can choose texts that meet."""
    body, begin, end = body_of(list(range(5_000)))
    one, other = TextMemo(1), TextMemo(2)
    for memo in (one, other):
        memo.learn(body, begin, end, memo.beginning(body, begin, end), struct.pack("<5000I", *range(5_000)))

    digests = [memo.beginning(body, begin, end).digests for memo in (one, other)]
    assert digests[0]
    assert set(digests[0]).isdisjoint(digests[1])


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the younger half is full it becomes the older one; what is asked for again comes back young."""
    assert SLICES_MAX * 600 < 8 * 2**20
    monkeypatch.setattr(texts, "SLICES_MAX", 4)
    ids = list(range(100_000, 103_000))
    memo = taught(ids)
    body, begin, end = body_of(ids)
    assert memo.beginning(body, begin, end).slices == len(body) // SLICE_BYTES
    for number in range(8):
        other, first, last = body_of([number * 1_000_000 + each for each in range(600)])
        memo.learn(
            other,
            first,
            last,
            memo.beginning(other, first, last),
            u32([number * 1_000_000 + each for each in range(600)]),
        )

    assert 0 == memo.beginning(body, begin, end).slices


def test_what_is_forgotten_is_not_known() -> None:
    """Until it is learnt again."""
    ids = list(range(100_000, 103_000))
    memo = taught(ids)
    body, begin, end = body_of(ids)
    assert memo.beginning(body, begin, end).slices

    memo.forget()

    assert 0 == memo.beginning(body, begin, end).slices
