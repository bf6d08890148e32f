"""What a command line says, in the forms in which engines are started."""

from __future__ import annotations

import json
import shlex
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexer.discovery.kubernetes.arguments import (
    CHARACTERS_MAX,
    NOTHING,
    Arguments,
    Events,
    read_arguments,
    referenced,
    tokens_of,
)
from tests.support.pods import events_config

PLAIN = '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}'
REPLAYS = '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5600", "replay_endpoint": "tcp://*:6600"}'
SCRIPT = """
# vllm serve other --port 1
export HF_HOME=/cache && pip install x;
exec vllm serve "meta/llama 8b" \\
  --port ${PORT:-8200} --served-model-name llama 'llama 8b' \\
  --kv-events-config '{"enable_kv_cache_events": true,
     "endpoint": "tcp://*:5557"}' -dp=4 | tee /log --port 9
other --port 2
"""


def vllm(**said: object) -> Arguments:
    """What is said by such a one, besides its defaults."""
    return Arguments(**{"engine": "vllm", "port": 8000, "ranks": (0,), **said})  # type: ignore[arg-type]


BOUND = Events(port=5557)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        pytest.param([], [], NOTHING, id="nothing"),
        pytest.param(["envoy", "-c", "x"], ["--port", "1"], NOTHING, id="no engine"),
        pytest.param([], ["meta/llama"], vllm(model="meta/llama"), id="a model for an entry point"),
        pytest.param([], ["serve", "meta/llama"], vllm(model="meta/llama"), id="for the entry point vllm"),
        pytest.param(
            ["vllm", "serve"], ["m", "--port", "9000"], vllm(model="m", port=9000), id="the model stands alone"
        ),
        pytest.param(["/usr/bin/vllm"], ["serve", "m"], vllm(model="m"), id="by its path"),
        pytest.param(
            ["vllm", "serve", "m"], ["--block-size=32"], vllm(model="m", block_size=32), id="the size of its blocks"
        ),
        pytest.param(
            ["vllm", "serve", "m"],
            ["--block-size", "0"],
            vllm(model="m", unread=("--block-size",)),
            id="no size of a block",
        ),
        pytest.param(
            ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            ["--model=m", "--served_model_name=a"],
            vllm(model="m", served=("a",)),
            id="underscores",
        ),
        pytest.param(
            ["vllm", "serve", "m"],
            ["--kv-events-config", PLAIN],
            vllm(model="m", events=BOUND),
            id="events as JSON",
        ),
        pytest.param(
            ["vllm", "serve", "m"],
            [f"--kv-events-config={REPLAYS}"],
            vllm(model="m", events=Events(port=5600, replay_port=6600)),
            id="with replay",
        ),
        pytest.param(
            ["vllm", "serve", "m"],
            ["--kv_events_config.enable_kv_cache_events", "true", "--kv-events-config.endpoint=tcp://*:7000"],
            vllm(model="m", events=Events(port=7000)),
            id="events by dotted keys",
        ),
        pytest.param(
            ["vllm", "serve", "m", "--kv-events-config", PLAIN, "--kv-events-config.replay_endpoint", "tcp://*:6557"],
            [],
            vllm(model="m", events=Events(port=5557, replay_port=6557)),
            id="JSON and a dotted key",
        ),
        pytest.param(
            ["vllm", "serve", "m"],
            ["--kv-events-config", events_config(0)],
            vllm(model="m", events=Events(port=0)),
            id="a free port",
        ),
        pytest.param(
            ["vllm", "serve", "m"],
            ["--data-parallel-size", "8", "--data-parallel-size-local=2", "--data-parallel-start-rank", "4"],
            vllm(model="m", ranks=(4, 5), tells_ranks=True),
            id="ranks of one node of several",
        ),
        pytest.param(
            ["vllm", "serve", "m", "-dp", "3"],
            [],
            vllm(model="m", ranks=(0, 1, 2), tells_ranks=True),
            id="ranks in short",
        ),
        pytest.param(
            ["vllm", "serve", "m", "-dp", "8", "-dpn", "5"],
            [],
            vllm(model="m", ranks=(5,), tells_ranks=True),
            id="one rank a process",
        ),
        pytest.param(
            ["vllm", "serve", "m", "-dp", "8", "-dpl", "0"],
            [],
            vllm(model="m", ranks=(), tells_ranks=True),
            id="none of them here",
        ),
        pytest.param(
            ["vllm", "serve", "m", "--config", "/etc/vllm.yaml"],
            [],
            vllm(model="m", port=None, ranks=None),
            id="a file of its own says more",
        ),
        pytest.param(
            ["sh", "-c", SCRIPT],
            [],
            vllm(
                model="meta/llama 8b",
                port=8200,
                served=("llama", "llama 8b"),
                events=BOUND,
                ranks=(0, 1, 2, 3),
                tells_ranks=True,
            ),
            id="a script",
        ),
        pytest.param(
            ["/bin/bash", "-lc"],
            ["vllm serve m --data-parallel-start-rank $(( LWS_WORKER_INDEX * 2 )) --port $(cat /port)"],
            vllm(model="m", port=None, ranks=None, tells_ranks=True, unread=("--port", "--data-parallel-start-rank")),
            id="what a shell computes",
        ),
        pytest.param(["sh", "-c", "vllm serve 'm"], [], NOTHING, id="quotes that do not end"),
        pytest.param(["sh", "-c"], [], NOTHING, id="a shell without a script"),
        pytest.param(
            ["python3", "-m", "sglang.launch_server"],
            [
                "--model-path",
                "q",
                "--dp-size",
                "2",
                "--kv-events-config",
                '{"publisher":"zmq","endpoint":"tcp://*:6000"}',
            ],
            Arguments(
                engine="sglang", port=30_000, model="q", ranks=(0, 1), tells_ranks=True, events=Events(port=6000)
            ),
            id="SGLang",
        ),
        pytest.param(
            [],
            ["--model-path", "q", "--port", "1"],
            Arguments(engine="sglang", port=1, model="q", ranks=(0,)),
            id="SGLang by its options",
        ),
        pytest.param(["vllm", "serve", "m", "--port", "$(P)"], [], vllm(model="m", port=9001), id="a variable"),
        pytest.param(
            ["vllm", "serve", "$(NOBODY)", "--port=x"],
            [],
            vllm(port=None, unread=("the model", "--port")),
            id="what nobody knows",
        ),
        pytest.param(["vllm", "serve", "$$(P)"], [], vllm(unread=("the model",)), id="a dollar sign"),
    ],
)
def test_a_command_line_is_read(command: list[str], args: list[str], expected: Arguments) -> None:
    """Each form comes to what the engine itself would take."""
    assert expected == read_arguments(command, args, {"P": "9001"})


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('{"endpoint": "tcp://*:5557"}', "enable_kv_cache_events"),
        (events_config(publisher="null"), "not zmq"),
        (events_config(endpoint="tcp://collector:5557"), "connects to"),
        (events_config(endpoint="tcp://0.0.0.0:5557"), "connects to"),
        (events_config(endpoint="ipc:///run/kv"), "no other pod can reach"),
        (events_config(endpoint="tcp://*:x"), "no port"),
        (events_config(endpoint="tcp://*:70000"), "no port"),
        (events_config(endpoint=7), "no text"),
    ],
)
def test_an_engine_that_nobody_can_listen_to_says_why(config: str, why: str) -> None:
    """No port, and words for the operator."""
    said = read_arguments(["vllm", "serve", "m"], ["--kv-events-config", config], {}).events

    assert said is not None
    assert said.port is None
    assert why in said.why


@pytest.mark.parametrize(
    "config", ["{", "[]", "7", "", '{"endpoint": "tcp://$(SECRET):5557", "enable_kv_cache_events": true}']
)
def test_events_that_cannot_be_known_are_not_guessed(config: str) -> None:
    """Their engine is asked instead."""
    assert read_arguments(["vllm", "serve", "m"], ["--kv-events-config", config], {}).events is None


def test_an_engine_by_default_binds_where_the_address_family_is_any() -> None:
    """vLLM takes `::` for a wildcard, wherever it stands."""
    config = json.dumps({"enable_kv_cache_events": True, "endpoint": "tcp://[::]:5558"})

    assert Events(port=5558) == read_arguments(["vllm", "serve", "m", "--kv-events-config", config], [], {}).events


CODE = st.text(st.sampled_from("ab-=/'\"\\ \t\n\r;|&()<>$#{}"), max_size=60)


@given(CODE)
@example("a\\")
@example('"a\\"b\\c" \'d\\\'e""')
@example("''")
def test_a_script_is_split_as_by_the_library(script: str) -> None:
    """Words, quotes and operators; the library's own is slow enough with each character to hold the loop."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace_split, lexer.whitespace, lexer.commenters = True, " \t\r", ""
    try:
        expected = list(lexer)
    except ValueError:
        expected = []

    assert expected == tokens_of(script)


KEYS = st.sampled_from(["enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["zmq", "tcp://*:5557"]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), each, max_size=4),
    max_leaves=8,
)
WORD = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["vllm", "serve", "sglang", "-m", "sh", "-c", "--port", "-dp", "$(A)", "${A:-x}", "--config", "'"]),
    st.sampled_from(["--kv-events-config", "--kv-events-config.endpoint", "--data-parallel-rank", "x.vllm.py"]),
    JSON.map(json.dumps),
    st.sampled_from(["[" * 4_000, '{"a":' * 600, "\ud800", "9" * 5_000]),
)


@given(st.lists(WORD, max_size=6), st.lists(WORD, max_size=6), st.dictionaries(st.just("A"), WORD))
@example(["vllm", "serve", "m"], ["--kv-events-config", '{"enable_kv_cache_events": []}'], {})
@example(["vllm", "serve", "m"], ["--kv-events-config", "[" * 4_000], {})
@example(["vllm", "serve", "m"], ["--kv-events-config.endpoint", "[" * 4_000], {})
@example(["vllm", "serve", "m"], ["--kv-events-config", "\ud800"], {})
def test_whatever_stands_there_is_read(command: list[str], args: list[str], variables: dict[str, str]) -> None:
    """Whoever may start a pod chooses it, and all pods are read by one process."""
    read_arguments(command, args, variables)
    referenced([*command, *args])


@pytest.mark.parametrize(
    ("words", "of_a"),
    [
        (["$(A)" * 5_000], 100_000),
        (["$(A)"] * 5_000, 10_000),
        (["sh", "-c", "vllm serve " + "$A" * 5_000], 100_000),
        (["sh", "-c", "vllm serve " + "${A} " * 5_000], 10_000),
        (["vllm", "serve", "m" * 1_000_000], 1),
    ],
)
def test_a_word_grows_within_bounds(words: list[str], of_a: int) -> None:
    """A short one, of a variable many times, would be longer than any memory."""
    tracemalloc.start()
    try:
        said = read_arguments(words, [], {"A": "x" * of_a})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(said.model or "") <= CHARACTERS_MAX
    assert most < 16 * 1024**2
