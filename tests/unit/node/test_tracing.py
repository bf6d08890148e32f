"""What becomes a span, under which trace, and what it says."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from indexer.lookup_view import Encoding
from indexer.model import SourceId
from indexer.trace_context import Asked, trace_id_of
from indexer.tracing import TEXT_MAX, Tracing, parent_of
from schemas.lookup import Holding, Holdings, LookupQuery
from tests.support.core import Core, ManualClock
from tests.support.core_events import prompt, stored, u32

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


class Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def traced(ratio: float, kept: Kept) -> Tracing:
    """What makes spans of such a share."""
    return Tracing(kept, ManualClock(), random.Random(7), ratio=ratio, about={})


def parent(flags: str, state: str | None = None) -> Asked:
    """Under a caller's trace."""
    return Asked("rest", "json", f"00-{TRACE}-{SPAN}-{flags}".encode(), None if state is None else state.encode())


def test_a_sampled_parent_is_continued_whatever_the_ratio() -> None:
    """The caller decides, and its own words for others go along."""
    kept = Kept()
    traced(0.0, kept).lookup(parent("01", "vendor=a:b"), None, 422, 0.25)
    (span,) = kept.spans

    assert span.parent is not None
    assert span.context is not None
    assert (int(TRACE, 16), int(SPAN, 16)) == (span.context.trace_id, span.parent.span_id)
    assert "vendor=a:b" == span.context.trace_state.to_header()
    assert span.start_time is not None
    assert 250_000_000 == (span.end_time or 0) - span.start_time


def test_a_parent_that_is_not_sampled_gets_no_span() -> None:
    """Also where all else is traced."""
    kept = Kept()
    traced(1.0, kept).lookup(parent("00"), None, 200, 0.0)

    assert not kept.spans


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_without_a_parent_a_share_is_traced(ratio: float) -> None:
    """Each in a trace of its own."""
    kept = Kept()
    tracing = traced(ratio, kept)
    for _ in range(400):
        tracing.lookup(Asked("rest", "json"), None, 200, 0.0)

    assert abs(len(kept.spans) - 400 * ratio) <= (40 if 0 < ratio < 1 else 0)
    assert all(span.parent is None or not span.parent.is_valid for span in kept.spans)
    assert len(kept.spans) == len({span.context.trace_id for span in kept.spans if span.context is not None})


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\udcff",
    ],
)
def test_what_is_no_parent_counts_as_none(header: str) -> None:
    """Whatever is sent: it is not our caller's fault that something before it writes nonsense."""
    raw = header.encode("utf-8", "surrogateescape")

    assert parent_of(raw, None) is None
    assert trace_id_of(raw) is None


def test_later_versions_of_the_header_may_say_more() -> None:
    """As the standard demands."""
    found = parent_of(f"01-{TRACE}-{SPAN}-01-more", "x" * 600)

    assert found is not None
    assert TRACE == trace_id_of(f"01-{TRACE}-{SPAN}-01-more")
    assert "" == found.trace_state.to_header(), "too long to be carried along"


def test_an_answer_is_told_in_numbers() -> None:
    """And by the model that it was resolved to."""
    core, kept = Core(), Kept()
    core.engine("a", model="m").say(stored([1, 2], prompt(2)))
    tracing = traced(1.0, kept)
    tracing.lookup(Asked("rest", "bytes"), core.ask(prompt(3), model="m"), 200, 0.0)
    tracing.lookup(Asked("rest", "bytes"), core.ask(prompt(3), model="what a caller said"), 200, 0.0)
    tracing.lookup(Asked("mooncake", "hashes"), Holdings("exact", [Holding("a", 0, 16, 16, 32)]), 200, 0.0)
    found, unknown, held = (dict(span.attributes or {}) for span in kept.spans)

    assert {
        "api": "rest",
        "input": "bytes",
        "code": 200,
        "state": "exact",
        "prompt_tokens": 12,
        "candidates": 1,
        "matched_tokens": 8,
        "model": "m",
    } == found
    assert "model" not in unknown
    assert ("exact", 1, 32) == (held["state"], held["holders"], held["matched_tokens"])


STRANGE = "what a caller said"


@pytest.mark.parametrize(
    "query",
    [
        LookupQuery(tokens=u32(prompt(3)), model=STRANGE),
        LookupQuery(tokens=u32(prompt(3)), model=STRANGE, pods=("nobody",)),
        LookupQuery(tokens=u32(prompt(3)), model=STRANGE, pods=("a", "nobody")),
        LookupQuery(tokens=u32(prompt(3)), model=STRANGE, pods=("a",)),
        LookupQuery(tokens=u32(prompt(3)), model=STRANGE, overdue=True),
        LookupQuery(tokens=u32(prompt(3)), model=STRANGE, overdue=True, pods=("nobody",)),
    ],
    ids=["alone", "of nobody", "of one and nobody", "of one", "late", "late, of nobody"],
)
@pytest.mark.parametrize("of_engine", ["m", None, "no engine"])
def test_a_model_that_nobody_knows_is_a_text_of_the_callers(query: LookupQuery, of_engine: str | None) -> None:
    """Whatever else there is to say of the answer, and also where no engine names a model and all are meant."""
    core, kept = Core(), Kept()
    if of_engine != "no engine":
        core.engine("a", model=of_engine).say(stored([1, 2], prompt(2)))
    traced(1.0, kept).lookup(Asked("rest", "bytes"), core.lookup.answer(query), 200, 0.0)
    (span,) = kept.spans

    assert STRANGE not in str(dict(span.attributes or {}))


def test_a_model_by_another_name_is_told_by_its_own() -> None:
    """An adapter means its base, also in an answer that came too late."""
    core, kept = Core(), Kept()
    core.engine("a", model="m").say(stored([1], prompt(1), lora_name="sql"))
    for overdue in (False, True):
        query = LookupQuery(tokens=u32(prompt(1)), model="sql", overdue=overdue)
        traced(1.0, kept).lookup(Asked("rest", "bytes"), core.lookup.answer(query), 200, 0.0)

    assert ["m", "m"] == [dict(span.attributes or {}).get("model") for span in kept.spans]


@pytest.mark.parametrize("encoding", ["json", "msgpack", "proto"])
@pytest.mark.parametrize("blocks", [0, 2, 5])
def test_the_longest_match_is_told_however_it_is_encoded(encoding: Encoding, blocks: int) -> None:
    """Answers hold entries that are encoded already, best first."""
    core, kept = Core(), Kept()
    core.engine("empty").say()
    core.engine("short").say(stored([1], prompt(1)))
    core.engine("a").say(stored(list(range(blocks)), prompt(blocks)))
    core.engine("b").say(stored([1], prompt(1)), stored([2], prompt(1, 4), parent=1, medium="CPU"))
    answer = core.lookup.answer(LookupQuery(tokens=u32(prompt(6))), encoding)
    traced(1.0, kept).lookup(Asked("rest", "json"), answer, 200, 0.0)

    assert 4 * max(2, blocks) == dict(kept.spans[0].attributes or {})["matched_tokens"]


@pytest.mark.parametrize(("code", "spans"), [(200, 1), (401, 0), (403, 0), (422, 1), (500, 1)])
def test_who_may_not_ask_makes_no_spans(code: int, spans: int) -> None:
    """And what went wrong with us is told as that."""
    kept = Kept()
    traced(1.0, kept).lookup(parent("01"), None, code, 0.0)

    assert spans == len(kept.spans)
    assert [code >= 500] * spans == [not span.status.is_unset for span in kept.spans]


def test_names_are_cut() -> None:
    """Whoever registers sources chooses them."""
    kept = Kept()
    traced(1.0, kept).replay(SourceId("x" * 500, 2), 3, None, "timeout", 0.0)
    (span,) = kept.spans

    assert {"source": "x" * TEXT_MAX, "dp_rank": 2, "from": 3, "result": "timeout"} == dict(span.attributes or {})
