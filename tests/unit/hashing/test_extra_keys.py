"""Salt, images, embeddings and lookahead: events and questions about the same content give the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from indexer.errors import BadRequestError
from indexer.hashing.extra_keys import event_extras, query_extras
from schemas.lookup import MmItem
from tests.support.core_events import u32
from tests.support.core_hashing import item


def of_event(
    extra_keys: list[Any] | None,
    *,
    lookahead: list[Any] | None = None,
    blocks: int = 3,
    lora_name: str | None = None,
    at_root: bool = True,
) -> dict[int, bytes]:
    """What an event's blocks take in."""
    return event_extras(extra_keys, lookahead, blocks=blocks, lora_name=lora_name, at_root=at_root)


def of_query(blocks: int = 3, **query: Any) -> dict[int, bytes]:  # noqa: ANN401  passed on as it is
    """What a prompt of so many blocks of 4 takes in."""
    return query_extras(tokens=u32(range(4 * blocks)), block_size=4, **query)


def test_nothing_extra() -> None:
    """No key, no bytes."""
    assert {} == of_event(None) == of_event([None, None, None]) == of_event([[], None, []]) == of_query()


def test_a_salt_is_in_the_first_block() -> None:
    """On both sides."""
    assert {0: item(b"S", b"s1")} == of_event([["s1"], None, None]) == of_query(cache_salt="s1")
    assert {} == of_query(cache_salt="")


def test_the_adapter_is_in_the_seed_and_leads_the_list() -> None:
    """Every block's list begins with it; it is no salt and no image."""
    assert {} == of_event([["ad"], ["ad"]], lora_name="ad")
    assert of_query(cache_salt="s1") == of_event([["ad", "s1"], ["ad"]], lora_name="ad")
    assert of_query(cache_salt="ad") == of_event([["ad"]], lora_name=None)


def test_a_bare_string_elsewhere_is_an_old_image() -> None:
    """Releases before 0.19 named an image without its place: no question can name that block, and none hits it."""
    got = of_event([["img"], None], at_root=False)

    assert {0: item(b"m", b"img")} == got
    assert got[0] not in {item(b"S", b"img"), item(b"M", b"0:img")}


def test_an_image_is_in_every_block_it_overlaps() -> None:
    """With its place relative to the block, negative where it began before."""
    of_items = of_query(mm_items=[MmItem("img", 3, 6)])

    assert {0: item(b"M", b"3:img"), 1: item(b"M", b"-1:img"), 2: item(b"M", b"-5:img")} == of_items
    assert of_items == of_event([[["img", 3]], [["img", -1]], [["img", -5]]])


@pytest.mark.parametrize(
    ("offset", "length", "blocks"),
    [(0, 1, [0]), (3, 1, [0]), (4, 4, [1]), (4, 5, [1, 2]), (0, 100, [0, 1, 2]), (12, 4, []), (8, 0, [])],
)
def test_which_blocks_an_image_overlaps(offset: int, length: int, blocks: list[int]) -> None:
    """Whole blocks of the prompt only."""
    assert blocks == sorted(of_query(mm_items=[MmItem("img", offset, length)]))


def test_images_in_the_order_of_their_places() -> None:
    """However the question lists them."""
    items = [MmItem("b", 2, 1), MmItem("a", 0, 1)]

    assert of_query(mm_items=items) == of_query(mm_items=items[::-1]) == of_event([[["a", 0], ["b", 2]]])


def test_images_on_top_of_each_other_are_refused() -> None:
    """No prompt has such; thousands of them would take seconds to hash."""
    with pytest.raises(BadRequestError, match="side by side") as refused:
        of_query(mm_items=[MmItem("a", 0, 3), MmItem("b", 2, 1)])

    assert "mm_items.overlap" == refused.value.code
    assert {0, 1} == set(of_query(mm_items=[MmItem("a", 0, 4), MmItem("b", 4, 1)]))


def test_order_of_kinds_is_the_engines() -> None:
    """Multimodal, salt, embeddings, then lookahead."""
    both = of_query(mm_items=[MmItem("img", 0, 2)], cache_salt="s1", lookahead=1)

    assert of_event([["ad", ["img", 0], "s1"]], lookahead=[[4]], lora_name="ad") == {0: both[0]}
    assert {0: item(b"S", b"s1") + item(b"E", b"\x01\x02")} == of_event([["s1", b"\x01\x02"]])


def test_lookahead_tokens() -> None:
    """A block's hash covers the tokens after it; where the prompt ends the item is shorter."""
    assert {0: item(b"L", u32([4])), 1: item(b"L", u32([8])), 2: item(b"L", b"")} == of_query(lookahead=1)
    two = {0: item(b"L", u32([4, 5])), 1: item(b"L", u32([8, 9]))}
    assert two == of_event(None, lookahead=[[4, 5], [8, 9], []])
    assert {**two, 2: item(b"L", b"")} == of_query(lookahead=2)


def test_kinds_never_meet() -> None:
    """A salt that looks like an image, an image that looks like a salt, a length that looks like content."""
    forms = [
        of_event([["img"]])[0],
        of_event([[["img", 0]]])[0],
        of_event([["img"]], at_root=False)[0],
        of_event([[b"img"]])[0],
        of_event(None, lookahead=[[1]])[0],
        of_event([["0:img"]])[0],
        of_event([["im", "g"]])[0],
    ]

    assert len(forms) == len(set(forms))


@pytest.mark.parametrize(
    "odd",
    [
        [7],
        [None],
        [["a", "b"]],
        [["a", 1, 2]],
        [[1, "a"]],
        [{"a": 1}],
        [["a", True]],
        [1.5],
        [msgspec.msgpack.Ext(5, b"x")],
    ],
)
def test_keys_that_nobody_knows_are_part_of_the_identity(odd: list[Any]) -> None:
    """No question can name them: a miss, never a false hit."""
    got = of_event([odd])

    assert got[0].startswith(b"?")
    assert got == of_event([odd])


@pytest.mark.parametrize("keys", ["img", 7, {"a": 1}])
def test_a_blocks_keys_that_are_no_list(keys: object) -> None:
    """Say nothing."""
    assert {} == of_event([keys])


def test_more_keys_than_blocks() -> None:
    """Only those of the event's blocks count."""
    assert {1: item(b"m", b"x")} == of_event([None, ["x"], ["y"], ["z"]], blocks=2)
    assert {0: item(b"L", u32([1]))} == of_event(None, lookahead=[[1], [2]], blocks=1)


@pytest.mark.parametrize("tokens", [["a"], [-1], [2**32], [[1]], "text", 7])
def test_lookahead_that_is_no_list_of_tokens(tokens: Any) -> None:  # noqa: ANN401  anything from the wire
    """Is part of the identity as it stands."""
    assert of_event(None, lookahead=[tokens])[0].startswith(b"L")


def test_lone_surrogates_do_no_harm() -> None:
    """Text that UTF-8 has no form for."""
    assert of_query(cache_salt="\ud800") == of_event([["\ud800"]])
