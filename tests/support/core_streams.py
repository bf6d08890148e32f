"""Random engine behaviour: prompts, the events that engines send about them, and how these are spelt.

Few prompts and deep chains, so that what one step announced the next ones meet again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hypothesis import strategies as st

from indexer.model import Tier
from schemas.lookup import MmItem
from tests.support.core_events import BLOCK, as_array, removed, stored
from tests.support.core_model import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.core_model import LaneKey

DEPTH: Final = 6
LAYOUTS: Final[dict[str, tuple[Group, ...]]] = {
    "one group, no kind told": (Group(None),),
    "one group": (Group("full_attention"),),
    "two full groups": (Group("full_attention"), Group("mla_attention")),
    "windows": (Group("full_attention"), Group("sliding_window", BLOCK, 9), Group("sliding_window", 2 * BLOCK, 14)),
    "rule unknown": (Group("full_attention"), Group("mamba", 4 * BLOCK)),
}
MEDIA: Final[dict[Tier, str | None]] = {Tier.GPU: "GPU", Tier.CPU: "cpu", Tier.STORAGE: "STORAGE", Tier.UNKNOWN: "tape"}


class Chain(NamedTuple):
    """A prompt's whole blocks: what goes into their identity besides tokens, and one letter a block."""

    flavour: str
    letters: tuple[int, ...]

    def tokens(self, first: int = 0, last: int | None = None) -> list[int]:
        return [100 * letter + i for letter in self.letters[first:last] for i in range(BLOCK)]

    def extra_keys(self, first: int, last: int) -> list[Any] | None:
        """As vLLM writes them, a list a block."""
        if self.flavour == "plain":
            return None
        by_block: dict[int, list[Any]] = {
            "adapter": {block: ["ad"] for block in range(last)},
            "salt": {0: ["pepper"]},
            "image": {1: [["img", 1]], 2: [["img", -3]]},
        }[self.flavour]
        return [by_block.get(block) for block in range(first, last)]

    def query(self, tail: int) -> dict[str, Any]:
        """The same prompt with `tail` more tokens, as a question."""
        return {
            "token_ids": [*self.tokens(), *range(7_000, 7_000 + tail)],
            "lora_name": "ad" if self.flavour == "adapter" else None,
            "cache_salt": "pepper" if self.flavour == "salt" else None,
            "mm_items": (MmItem("img", 5, 6),) if self.flavour == "image" else (),
        }


class Contents:
    """Numbers contents, and knows which content every engine hash stands for."""

    def __init__(self) -> None:
        self.of_hash: dict[int, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def numbers(self, chain: Chain) -> list[int]:
        """The content of each block. An image enters the blocks that it overlaps, a salt and an adapter all."""
        before: object = chain.flavour if chain.flavour in {"adapter", "salt"} else "plain"
        out = []
        for block, letter in enumerate(chain.letters):
            key = (before, letter, chain.flavour == "image" and block in {1, 2})
            before = self._numbers.setdefault(key, len(self._numbers))
            out.append(before)
        return out

    def hashes(self, chain: Chain, engine: str) -> list[int]:
        """That engine's hashes of the blocks: other engines and other hidden salts have others for the same content."""
        out = []
        for number in self.numbers(chain):
            digest = blake2b(f"{engine} {number}".encode(), digest_size=8).digest()
            out.append(int.from_bytes(digest, "big"))
            self.of_hash[out[-1]] = number
        return out


TRUNKS: Final = ((0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 1, 1), (1, 0, 0, 0, 0, 0))
"""Few prompts, so that what one step announced the next ones meet again."""
CHAINS = st.builds(
    lambda flavour, trunk, blocks: Chain(flavour, trunk[:blocks]),
    st.sampled_from(["plain", "plain", "plain", "adapter", "salt", "image"]),
    st.sampled_from(TRUNKS),
    st.integers(1, DEPTH),
)
HIDDEN_SALTS = st.sampled_from([False, False, False, True])
TIERS = st.sampled_from([Tier.GPU, Tier.GPU, Tier.GPU, Tier.CPU, Tier.STORAGE, Tier.UNKNOWN])
FORMS = st.sampled_from(["map", "array"])
SPELLINGS = st.sampled_from(["int", "bytes", "signed"])


class Store(NamedTuple):
    chain: Chain
    span: tuple[int, int]
    tier: Tier
    group: int
    hidden_salt: bool
    form: str
    spelling: str
    bare: bool

    def engine(self, seed: str) -> str:
        return f"{seed}/salted" if self.hidden_salt else seed


class Removal(NamedTuple):
    chain: Chain
    blocks: list[int]
    tier: Tier
    group: int
    hidden_salt: bool
    form: str
    spelling: str

    def engine(self, seed: str) -> str:
        return f"{seed}/salted" if self.hidden_salt else seed


STORES = st.builds(
    Store,
    CHAINS,
    st.tuples(st.integers(0, DEPTH - 1), st.integers(1, DEPTH)),
    TIERS,
    st.integers(0, 2),
    HIDDEN_SALTS,
    FORMS,
    SPELLINGS,
    st.booleans(),
)
REMOVALS = st.builds(
    Removal,
    CHAINS,
    st.lists(st.integers(0, DEPTH - 1), min_size=1),
    TIERS,
    st.integers(0, 2),
    HIDDEN_SALTS,
    FORMS,
    SPELLINGS,
)
STORED = st.lists(STORES, min_size=1, max_size=4)
REMOVED = st.lists(st.one_of(STORES, REMOVALS, REMOVALS), min_size=1, max_size=4)
MIXED = st.lists(
    st.one_of(STORES, REMOVALS, st.sampled_from(["clear", "nothing", "unknown", "broken"])), min_size=1, max_size=4
)


def spelt(hashes: list[int], spelling: str) -> list[int | bytes]:
    """The same u64 values as engines have put them on the wire."""
    if spelling == "bytes":
        return [b"\x07" * 24 + value.to_bytes(8, "big") for value in hashes]
    if spelling == "signed":
        return [value - 2**64 if value >= 2**63 else value for value in hashes]
    return list(hashes)


class Told(NamedTuple):
    """One event for the wire, and what it says: the model is told the same."""

    event: object
    lane: LaneKey
    hashes: list[int]
    parent: int | None
    dense: bool


def removal_event(removal: Removal, contents: Contents, seed: str, groups: Sequence[Group]) -> Told:
    """`BlockRemoved` of an engine with these groups."""
    number = removal.group % len(groups)
    all_hashes = contents.hashes(removal.chain, removal.engine(seed))
    hashes = [all_hashes[block % len(all_hashes)] for block in removal.blocks]
    event = removed(*spelt(hashes, removal.spelling), medium=MEDIA[removal.tier], group_idx=number)
    formed = as_array(event) if removal.form == "array" else event
    return Told(formed, (number, removal.tier), hashes, None, dense=False)


def store_event(
    store: Store, contents: Contents, seed: str, groups: Sequence[Group], lacks: Callable[[LaneKey, int], bool]
) -> Told:
    """`BlockStored` of an engine with these groups.

    `lacks`: whether no engine could name that block as a parent; the run then begins further up.
    """
    number = store.group % len(groups)
    group, lane, chain = groups[number], (number, store.tier), store.chain
    all_hashes = contents.hashes(chain, store.engine(seed))
    step = group.size // BLOCK
    first = store.span[0] % len(chain.letters)
    last = min(len(chain.letters), first + store.span[1])
    while first and lacks(lane, all_hashes[first - 1]):
        first -= 1
    first -= first % step
    hashes = all_hashes[first + step - 1 : last : step]
    dense = not store.bare and bool(hashes)
    parent = all_hashes[first - 1] if first and dense else None
    event = stored(
        spelt(hashes, store.spelling),
        chain.tokens(first, first + len(hashes) * step) if dense else (),
        None if parent is None else spelt([parent], store.spelling)[0],
        block_size=group.size if dense else 0,
        medium=MEDIA[store.tier],
        lora_name="ad" if chain.flavour == "adapter" else None,
        extra_keys=chain.extra_keys(first, last) if dense and step == 1 else None,
        group_idx=number,
        kv_cache_spec_kind=group.kind,
        kv_cache_spec_sliding_window=group.window,
    )
    formed = as_array(event) if store.form == "array" else event
    return Told(formed, lane, hashes, parent, dense)
