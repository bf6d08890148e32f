"""What messages say of themselves, held against the registration."""

from __future__ import annotations

from indexer.collect.claims import Claims
from indexer.collect.commands import Count, Warn
from indexer.model import Descriptor, RawBatch
from tests.support.collect_batches import batch, payload

SOURCE = Descriptor(pod="a", dp_rank=1, model="m")
REGISTERED = "ignored, its events are not: they count for the source as it is registered"
RANK_0 = f"its batches name data-parallel rank 0: that number is {REGISTERED}"


def message(topic: bytes, rank: int | None = 1) -> RawBatch:
    """A message with that topic and rank."""
    return RawBatch(topic, 0, payload(0, rank=rank))


def test_agreement_is_silent() -> None:
    """An empty topic and a missing rank claim nothing."""
    claims = Claims(SOURCE)

    assert [] == claims.check([message(b""), message(b"kv@a@m"), message(b"a"), message(b"", None)])


def test_a_mismatch_is_told_when_it_begins_and_taken_back_when_it_ends() -> None:
    """Not for each message: topics are looked at when they change."""
    claims = Claims(SOURCE)

    assert [
        Count("topic_mismatch"),
        Warn("topic", f"its topic names pod 'b': that name is {REGISTERED}"),
    ] == claims.check([message(b"kv@b@m"), message(b"kv@b@m")])
    assert [
        Count("topic_mismatch"),
        Warn("topic", f"its topic names model 'x': that name is {REGISTERED}"),
    ] == claims.check([message(b"kv@a@x")])
    assert [Warn("topic", None)] == claims.check([message(b"kv@a@m")])
    assert [] == claims.check([message(b"kv@a@m")])


def test_both_names_are_told_where_both_differ() -> None:
    """An operator who mends one should not have to wait for the other."""
    assert [
        Count("topic_mismatch"),
        Warn("topic", f"its topic names pod 'b' and model 'x': those names are {REGISTERED}"),
    ] == Claims(SOURCE).check([message(b"kv@b@x")])


def test_the_rank_is_looked_at_with_the_topic_and_after_a_reconnect() -> None:
    """It takes a walk over the payload, so not with every message."""
    claims = Claims(SOURCE)

    assert [Count("rank_mismatch"), Warn("rank", RANK_0)] == claims.check([batch(0)])
    assert [] == claims.check([message(b"", 1)])
    claims.look_again()
    assert [Warn("rank", None)] == claims.check([message(b"", 1)])


def test_long_names_are_cut_in_remarks() -> None:
    """A publisher chooses them, an operator has to read them."""
    (_, pod) = Claims(SOURCE).check([message(b"kv@" + b"p" * 400 + b"@m")])
    (_, model) = Claims(SOURCE).check([message(b"kv@a@" + b"\xff" * 400)])

    assert Warn("topic", f"its topic names pod {'p' * 100!r}: that name is {REGISTERED}") == pod
    assert Warn("topic", "its topic names model '" + r"\\xff" * 25 + f"': that name is {REGISTERED}") == model


def test_an_idle_engines_replies_tell_its_rank() -> None:
    """Once, and only until a live message does."""
    claims = Claims(SOURCE)

    assert [Count("rank_mismatch"), Warn("rank", RANK_0)] == (claims.check_replayed([batch(0)]))
    assert [] == claims.check_replayed([batch(1)])
    assert [Warn("rank", None)] == claims.check([message(b"", 1)])
    assert [] == claims.check_replayed([batch(2)])
