"""Known heads: kept byte for byte, within bounds, and never one that carries more than how to read a body."""

import pytest

from api.rest.heads import HEAD_BYTES_MAX, HEADS_MAX, KnownHeads

PLAIN = {b"host": b"x", b"content-type": b"application/json", b"content-length": b"7"}


def test_what_was_learnt_comes_back() -> None:
    """Under the same bytes, and no others."""
    heads = KnownHeads()
    heads.learn(b"head", b"/v1/lookup", PLAIN)

    assert (b"/v1/lookup", PLAIN, 7) == heads.get(b"head")
    assert heads.get(b"Head") is None


@pytest.mark.parametrize(
    "name",
    [
        *("x-kvindexer-cache-salt", "authorization", "cookie", "x-request-id", "traceparent"),
        *("transfer-encoding", "content-encoding", "expect", "upgrade", "x-anything"),
    ],
)
def test_secrets_and_what_changes_are_not_kept(name: str) -> None:
    """Nor what makes the body more than the bytes behind the head."""
    heads = KnownHeads()
    heads.learn(b"head", b"/v1/lookup", {**PLAIN, name.encode(): b"1"})

    assert heads.get(b"head") is None


def test_a_head_without_a_length_is_not_kept() -> None:
    """Its body ends elsewhere."""
    heads = KnownHeads()
    heads.learn(b"head", b"/v1/lookup", {b"host": b"x"})

    assert heads.get(b"head") is None


def test_memory_is_bounded() -> None:
    """In number and in length; when full all are forgotten."""
    heads = KnownHeads()
    heads.learn(b"x" * (HEAD_BYTES_MAX + 1), b"/v1/lookup", PLAIN)
    assert heads.get(b"x" * (HEAD_BYTES_MAX + 1)) is None

    for number in range(HEADS_MAX + 1):
        heads.learn(b"%d" % number, b"/v1/lookup", PLAIN)
    assert heads.get(b"0") is None
    assert heads.get(b"%d" % HEADS_MAX) is not None
