"""Any pod and any command line: nothing that stands in one raises, or costs another."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from indexer.discovery.kubernetes.arguments import RANKS_MAX, read_arguments
from indexer.discovery.kubernetes.pod import read_pod
from indexer.discovery.kubernetes.reading import read
from tests.support.pod_pictures import picture, rules
from tests.support.pods import container, engine_args, events_config, pod, running, status, terminated, told, waiting

WORDS = st.one_of(
    st.sampled_from(
        [
            *engine_args(),
            "vllm",
            "serve",
            "sh",
            "-c",
            "-m",
            "sglang.launch_server",
            "--model-path",
            "--kv-events-config",
            "--kv-events-config.endpoint",
            "--kv-events-config=",
            "--data-parallel-size",
            "--data-parallel-size-local=2",
            "-dp",
            "-dpn=70000",
            "--config",
            "$(A)",
            "${A:-8}",
            "$((A * 2))",
            "vllm serve m --port 1 && x | y",
            "'",
            "tcp://*:5557",
            "tcp://[::]:0",
            events_config(0),
            events_config(65_535, 65_535),
        ]
    ),
    st.text(max_size=30),
)
LINES = st.lists(WORDS, max_size=12)
STATES = st.sampled_from([running(), waiting(), terminated(), {}, {"state": None}, {"state": {"waiting": {}}}])
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            f"kvindexer.io/{name}"
            for name in ("port", "events-port", "replay-port", "ranks", "model", "role", "container")
        ]
        + ["kvindexer.io/ignore", "kvindexer.io/tenant", "kvindexer.io/metrics-port", "llm-d.ai/role"]
    ),
    st.one_of(st.sampled_from(["1", "0-7", "none", "true", "false", "vllm", "both", "prefill"]), st.text(max_size=20)),
    max_size=4,
)


@given(LINES, LINES, st.dictionaries(st.sampled_from("ABC"), st.text(max_size=20)))
def test_any_command_line_is_read(command: list[str], args: list[str], variables: dict[str, str]) -> None:
    """Ports are ports, ranks are bounded, and what nobody can know is not there."""
    said = read_arguments(command, args, variables)

    assert said.port is None or 1 <= said.port <= 65_535
    assert said.ranks is None or len(said.ranks) <= RANKS_MAX
    for events in (said.events,) if said.events is not None else ():
        assert (events.port is None) is bool(events.why)
        assert events.port is None or 0 <= events.port <= 65_535
    assert all("$" not in name for name in (said.model or "", *said.served))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), LINES, ANNOTATIONS, STATES, st.booleans(), st.sampled_from(["1", "2"])),
        max_size=6,
        unique_by=lambda each: each[0],
    )
)
def test_any_pods_make_a_picture(pods: list[tuple[Any, ...]]) -> None:
    """In any order the same; each source at its own pod's address, with a life."""
    made = [
        told(
            pod(name, container(args=args), annotations=annotations),
            status(f"10.0.0.{last}", vllm=state),
            uid=name,
            deleted=deleted,
        )
        for name, args, annotations, state, deleted, last in pods
    ]
    now = picture(*made, answered=None)

    assert now == picture(*reversed(made), answered=None)
    for key, found in now.found.items():
        assert key == found.descriptor.id
        assert found.life
        assert found.ready is not bool(found.why)
        assert str(found.descriptor.endpoint).startswith(f"tcp://{str(found.descriptor.address).rpartition(':')[0]}:")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 70_000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "state", "args", "x"]), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"metadata": JSON | st.fixed_dictionaries({"name": st.text(), "labels": JSON, "annotations": JSON})},
        optional={
            "spec": JSON | st.fixed_dictionaries({"containers": JSON | st.lists(JSON), "hostNetwork": JSON}),
            "status": JSON | st.fixed_dictionaries({"phase": JSON, "podIP": JSON, "containerStatuses": JSON}),
        },
    )
)
def test_any_json_is_a_pod_or_none(said: object) -> None:
    """What is not as it should be is refused as a whole, and what is gets read."""
    try:
        made = read_pod(json.dumps(said).encode())
    except msgspec.ValidationError:
        return
    read(made, rules())
