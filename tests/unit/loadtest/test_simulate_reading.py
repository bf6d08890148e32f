"""Traces and logs are read as they are meant, and what cannot be read is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.simulate.fleet import Fleet, replay
from loadtest.simulate.logs import LogError, read_log
from loadtest.simulate.sessions import Numbers, Sessions
from loadtest.simulate.strategies import strategy
from loadtest.simulate.traces import TRACES, conversation, recorded, weka
from loadtest.simulate.workload import Asked, Trace, Workload

REQUESTS = 200


def hits(workload: Workload) -> int:
    """Blocks, in one cache for all."""
    return replay(workload, Fleet(1, None), strategy("round robin", 1)).hit_blocks


def read(path: Path, text: str, *, size: int = 10) -> Workload:
    """As it was."""
    path.write_text(text)
    return read_log(path, size).stretched()


def lines(*requests: dict[str, object]) -> str:
    """JSON lines."""
    return "".join(json.dumps(each) + "\n" for each in requests)


@pytest.mark.parametrize("name", TRACES)
def test_every_trace_is_read_in_order(name: str) -> None:
    """From its beginning on, with blocks that are shared."""
    requests = TRACES[name](REQUESTS).stretched(100.0).requests

    assert REQUESTS == len(requests)
    assert [each.at_s for each in requests] == sorted(each.at_s for each in requests)
    assert all(each.blocks == sum(length for _, length in each.path) for each in requests)
    assert len({run for each in requests for run, _ in each.path}) < sum(len(each.path) for each in requests)


def test_conversations_begin_with_the_same_block() -> None:
    """The trap that the trace is: blocks of 512 tokens, the last one a part."""
    trace = conversation(REQUESTS)
    requests = trace.stretched().requests

    assert 1 == len({each.path[0] for each in requests})
    assert all(each.blocks == -(-each.tokens // trace.block_size) for each in requests)
    assert 1 < len({each.session for each in requests}) < REQUESTS


def test_sessions_of_agents_share_nothing_with_others() -> None:
    """Whole blocks of 64 tokens; turns of one have nearly all of the turn before."""
    requests = weka(REQUESTS).stretched(0.0).requests
    runs: dict[int, set[int]] = {}
    for each in requests:
        runs.setdefault(each.session, set()).update(run for run, _ in each.path)

    assert all(each.blocks == each.tokens // 64 for each in requests)
    assert len(runs) > 1
    assert sum(map(len, runs.values())) == len(set().union(*runs.values()))


def test_questions_of_recorded_engines_are_blocks_of_sixteen() -> None:
    """Prompts as they were asked, chained by content."""
    trace = recorded()

    assert 16 == trace.block_size
    assert 0 < hits(trace.stretched()) < sum(each.blocks for each in trace.stretched().requests)


def test_a_session_goes_on_where_a_prompt_has_all_of_an_earlier_one() -> None:
    """One block is too little to tell, and another session may begin with the same ones."""
    sessions = Sessions()
    prompts = ([1], [1, 2, 3], [1, 4, 5], [1, 2, 3, 6], [1, 4, 5, 7, 8])

    assert [0, 1, 2, 1, 2] == [sessions.of(ids, len(ids)) for ids in prompts]


def test_the_last_block_of_a_prompt_may_be_a_part_of_one() -> None:
    """It is another one when the session goes on."""
    sessions = Sessions()

    assert [0, 0] == [sessions.of([1, 2, 3], 2), sessions.of([1, 2, 4, 5], 3)]


def test_equal_contents_are_equal_blocks_behind_equal_ones_alone() -> None:
    """As engines hash them."""
    numbers = Numbers()

    assert [0, 1] == numbers.chained(["a", "b"])
    assert [2, 3] == numbers.chained(["b", "b"])
    assert [0, 1, 4] == numbers.chained(["a", "b", "b"])


def trace(*times: tuple[float, float]) -> Trace:
    """Prompts of 100 tokens."""
    none = np.array([], np.int64)
    return Trace("made", 10, [Asked(begins_s, after_s, 100, 0, 0, none) for begins_s, after_s in times])


def test_times_are_stretched_to_a_rate() -> None:
    """Of tokens a second between the first and the last tenth of them; pauses within a session stay."""
    even = trace(*((float(second), 0.0) for second in range(101)))
    assert 100.0 == pytest.approx(even.tokens_s(), rel=0.02)
    assert 4.0 == pytest.approx(even.at_rate(25.0).stretch, rel=0.02)

    sessions = trace((1.0, 0.0), (1.0, 5.0), (2.0, 0.0), (2.0, 5.0)).stretched(10.0)
    assert [10.0, 15.0, 20.0, 25.0] == [each.at_s for each in sessions.requests]


def test_a_rate_that_no_stretch_comes_to() -> None:
    """All at once stays all at once."""
    assert [0.0, 0.0] == [each.at_s for each in trace((0.0, 0.0), (0.0, 0.0)).at_rate(1.0).requests]


def test_a_log_with_sessions(tmp_path: Path) -> None:
    """In whatever order; a turn has all of the one before, one that is shorter begins anew."""
    log = lines(
        {"timestamp": 3, "input_tokens": 20, "session": "a"},
        {"timestamp": "1970-01-01T00:00:01Z", "input_tokens": 30, "output_tokens": 5, "session": "a", "status": 200},
        {"timestamp": 2, "input_tokens": 59, "session": "a"},
        {"timestamp": 4, "input_tokens": 30, "session": "b"},
        {"timestamp": 5, "input_tokens": 40},
        {"timestamp": 6, "input_tokens": 40},
    )
    told = read(tmp_path / "access.jsonl", log)

    assert [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] == [each.at_s for each in told.requests]
    assert [3, 5, 2, 3, 4, 4] == [each.blocks for each in told.requests]
    assert [0, 0, 0, 1, 2, 3] == [each.session for each in told.requests]
    assert 3 == hits(told)


def test_a_log_with_heads(tmp_path: Path) -> None:
    """What prompts begin with is shared by all that name it, and cut to whole blocks."""
    head = {"head": "assistant", "head_tokens": 25}
    log = lines(
        {"timestamp": 1, "input_tokens": 50, "session": "a", **head},
        {"timestamp": 2, "input_tokens": 50, "session": "b", **head},
        {"timestamp": 3, "input_tokens": 40, "session": "b", **head},
        {"timestamp": 4, "input_tokens": 50, "session": "b", "head": "other", "head_tokens": 90},
    )

    assert 2 + 2 == hits(read(tmp_path / "access.jsonl", log))


def test_a_log_with_block_ids(tmp_path: Path) -> None:
    """JSON or CSV, numbers or words, packed or not; sessions are found by them."""
    ids = [["9f3c", "77"], ["9f3c", "77", "a0"], ["11", "12"]]
    log = lines(*({"timestamp": at, "input_tokens": 10 * len(each), "block_ids": each} for at, each in enumerate(ids)))
    table = "timestamp,input_tokens,session,block_ids\n" + "".join(
        f"{at},{10 * len(each)},,{' '.join(each)}\n" for at, each in enumerate(ids)
    )
    packed = tmp_path / "access.csv.gz"
    packed.write_bytes(gzip.compress(table.encode()))
    both = read(tmp_path / "access.jsonl", log), read_log(packed, 10).stretched()

    assert [2, 2] == [hits(each) for each in both]
    assert [[0, 0, 1]] * 2 == [[request.session for request in each.requests] for each in both]


def test_a_log_of_the_mooncake_traces(tmp_path: Path) -> None:
    """Times in milliseconds."""
    log = lines(*({"timestamp": at, "input_length": 15, "output_length": 3, "hash_ids": [0, 1]} for at in (0, 1500)))
    told = read(tmp_path / "trace.jsonl", log)

    assert [(0.0, 15, 3), (1.5, 15, 3)] == [(each.at_s, each.tokens, each.output) for each in told.requests]
    assert 2 == hits(told)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no request"),
        ('{"timestamp": 1}\n', r"request 1: .*input_tokens"),
        ('{"timestamp": 1, "input_tokens": 5}\n{"timestamp": 1,\n', "request 2: "),
        ('{"timestamp": "soon", "input_tokens": 5}\n', "neither seconds nor ISO 8601"),
        ('{"timestamp": "nan", "input_tokens": 5}\n', "neither seconds nor ISO 8601"),
        ('{"timestamp": 1, "input_tokens": -5}\n', "tokens must be 0 to"),
        ('{"timestamp": 1, "input_tokens": 99000000}\n', "tokens must be 0 to"),
        ('{"timestamp": 1, "input_length": 5, "hash_ids": "x"}\n', "request 1: .*hash_ids"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, problem: str) -> None:
    """With its place."""
    with pytest.raises(LogError, match=problem):
        read(tmp_path / "access.jsonl", text)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    """No traceback, either."""
    broken = tmp_path / "access.jsonl.gz"
    broken.write_bytes(b"no gzip")
    for path in (tmp_path / "nowhere.jsonl", broken):
        with pytest.raises(LogError, match="cannot be read"):
            read_log(path, 10)
