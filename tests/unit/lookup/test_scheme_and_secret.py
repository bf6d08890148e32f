"""Local hashes of another indexer, where the deployment keys its hashes with a secret."""

from __future__ import annotations

import pytest

from indexer.errors import SchemeConflictError
from tests.support.core import Core
from tests.support.core_events import stored
from tests.support.core_hashing import naive_locals

PROMPT = [1, 2, 3, 4]


def local_hashes() -> list[int]:
    """As a caller of that scheme has them."""
    return naive_locals(PROMPT, len(PROMPT))


def test_local_hashes_are_chained_where_there_is_no_secret() -> None:
    """They find what the ids find."""
    core = Core()
    core.engine().say(stored([1], PROMPT))

    answer = core.ask(block_hashes=local_hashes(), block_size=4, scheme="dynamo")
    assert 4 == answer["pod"].matched_tokens


@pytest.mark.parametrize("known", [True, False])
def test_with_a_secret_they_are_refused(known: bool) -> None:
    """Whatever is known of the engines. Whoever asks by a scheme without secret must not learn what is held."""
    core = Core(secret=b"pepper")
    if known:
        core.engine().say(stored([1], PROMPT))

    with pytest.raises(SchemeConflictError, match="secret") as caught:
        core.ask(block_hashes=local_hashes(), block_size=4, scheme="dynamo")
    assert "pepper" not in str(caught.value)


@pytest.mark.parametrize("scheme", [None, "kvi1"])
def test_with_a_secret_its_own_hashes_are_taken(scheme: str | None) -> None:
    """Those of `POST /v1/hash` are keyed."""
    core = Core(secret=b"pepper")
    core.engine().say(stored([1], PROMPT))

    answer = core.ask(block_hashes=core.hashes(PROMPT, 4), block_size=4, scheme=scheme)
    assert 4 == answer["pod"].matched_tokens
