"""An engine's list of models, as engines write it, and whatever else may come."""

from __future__ import annotations

import json

import pytest

from indexer.index.served import ADAPTERS_MAX, NAMES_MAX, Served
from indexer.scraping.models_list import BYTES_MAX, NoList, read_models


def _read(*entries: object) -> Served:
    return read_models(json.dumps({"object": "list", "data": entries}).encode())


def test_a_list_of_vllm() -> None:
    """Served names, where the model is from, and adapters with their parent."""
    card = {"object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 8192, "permission": []}

    assert Served(("llama", "llama-3", "/models/llama"), ("fr", "de")) == _read(
        card | {"id": "llama", "root": "/models/llama", "parent": None},
        card | {"id": "llama-3", "root": "/models/llama", "parent": None},
        card | {"id": "fr", "root": "/lora/fr", "parent": "llama"},
        card | {"id": "de", "root": "/lora/de", "parent": "llama"},
    )


def test_a_list_without_more_than_names() -> None:
    """As other engines have it."""
    assert Served(("m",)) == _read({"id": "m"})
    assert Served(("m",)) == _read({"id": "m", "root": "m", "parent": ""})


def test_entries_that_are_none_cost_only_themselves() -> None:
    """Wrong types, empty and endless names, names with line breaks, and what is there twice."""
    bad = [None, 7, "m", [], {}, {"id": 7}, {"id": ""}, {"id": "x" * 513}, {"id": "a\nb"}, {"id": ["m"]}]
    odd = [{"id": "m", "root": 7, "parent": 7}, {"id": "m", "root": "a\tb"}, {"id": "m", "parent": "m"}]

    assert Served(("m",)) == _read(*bad, *odd)


def test_too_many_names() -> None:
    """Those that come first are taken."""
    served = _read(
        *({"id": f"m{i}"} for i in range(NAMES_MAX + 5)),
        *({"id": f"a{i}", "parent": "m0"} for i in range(ADAPTERS_MAX + 5)),
    )

    assert (NAMES_MAX, "m0") == (len(served.names), served.names[0])
    assert (ADAPTERS_MAX, "a0") == (len(served.adapters), served.adapters[0])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b'{"data": {}}',
        b'{"data": []}',
        b"\xff",
        b"[" * 100_000,
        b" " * (BYTES_MAX + 1),
    ],
)
def test_what_is_no_list(content: bytes) -> None:
    """Nothing is learnt of it."""
    with pytest.raises(NoList):
        read_models(content)


def test_adapters_alone_are_no_models() -> None:
    """A list must name the model itself."""
    with pytest.raises(NoList):
        _read({"id": "a", "parent": "m"})
