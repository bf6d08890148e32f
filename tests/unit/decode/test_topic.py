"""Topic frames: bytes in, pod and model out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.decode.topic import Topic, mismatches, parse_topic
from indexer.model import Descriptor


@pytest.mark.parametrize(
    ("raw", "pod", "model"),
    [
        (b"", None, None),
        (b"kv@10.0.0.1@llama", "10.0.0.1", "llama"),
        (b"kv@10.0.0.1:8000@org/model", "10.0.0.1:8000", "org/model"),
        (b"kv@[fd00::5]:8000@m", "[fd00::5]:8000", "m"),
        (b"kv@vllm-0@org/model@rev@2", "vllm-0", "org/model@rev@2"),
        (b"kv@vllm-0@", "vllm-0", None),
        (b"kv@vllm-0", "kv@vllm-0", None),
        (b"kv@@m", "kv@@m", None),
        (b"kv@", "kv@", None),
        (b"KV@a@b", "KV@a@b", None),
        (b"kv-events", "kv-events", None),
        (b"vllm-0", "vllm-0", None),
        ("kv@pöd@modèle".encode(), "pöd", "modèle"),
        (b"kv@a\xff@m\xfe", "a\\xff", "m\\xfe"),
        (b"\xff\x00", "\\xff\x00", None),
    ],
)
def test_topics(raw: bytes, pod: str | None, model: str | None) -> None:
    """The empty topic names nobody, `kv@pod@model` both, anything else the pod."""
    assert Topic(pod, model) == parse_topic(raw)


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"kv@" + tail))
def test_any_bytes_give_a_printable_utf8_name(raw: bytes) -> None:
    """Nothing raises, names can be encoded again, and equal bytes give equal names."""
    topic = parse_topic(raw)

    for name in topic:
        assert name is None or name.encode()
    assert topic == parse_topic(bytes(raw))
    assert (topic.pod is None) == (raw == b"")


SOURCE = Descriptor(pod="vllm-0", model="llama", aliases=("replica-7",), address="10.0.0.1:8000")


@pytest.mark.parametrize(
    ("raw", "contradicts"),
    [
        (b"", []),
        (b"kv@vllm-0@llama", []),
        (b"kv@replica-7@llama", []),
        (b"kv@10.0.0.1:8000@llama", []),
        (b"kv@10.0.0.1@llama", []),
        (b"vllm-0", []),
        (b"kv@vllm-1@llama", ["pod"]),
        (b"kv@10.0.0.2@llama", ["pod"]),
        (b"vllm-1", ["pod"]),
        (b"kv@vllm-0@qwen", ["model"]),
        (b"kv@vllm-1@qwen", ["pod", "model"]),
    ],
)
def test_a_topic_is_held_against_all_names_of_its_source(raw: bytes, contradicts: list[str]) -> None:
    """Pod, aliases and address (with or without its port) are rightful names; another pod or model is a mismatch."""
    assert contradicts == mismatches(parse_topic(raw), SOURCE)


def test_a_source_without_a_model_contradicts_no_model() -> None:
    """A topic may be the first to name the model. The brackets of an IPv6 address are no part of it."""
    source = Descriptor(pod="[fd00::5]:8000")

    assert [[], []] == [mismatches(parse_topic(raw), source) for raw in (b"kv@[fd00::5]:8000@m", b"kv@fd00::5@m")]
