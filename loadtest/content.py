"""What prompts are made of: documents of blocks with made-up tokens. Pure, and the same in every process.

A document is a run of blocks that follows another one (a conversation follows its system prompt) or stands at the
start. Everything about it follows from its key, so processes agree on contents without exchanging them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK: Final = 16
"""Tokens in a block."""
VOCABULARY: Final = 128_256
"""Token ids are below this, as in the engines' recorded streams."""
BLOCKS_MAX: Final = 1 << 20
"""Of one document."""

_SEED: Final = 0x6B7669
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


@dataclass(frozen=True, slots=True)
class Document:
    """`key` tells apart contents; `blocks` is the length of its own part, after all of `parent`."""

    key: int
    blocks: int
    parent: Document | None = None

    @property
    def depth(self) -> int:
        """Blocks from the start of a prompt to the end of this document."""
        return self.blocks + (self.parent.depth if self.parent else 0)

    def tokens(self) -> NDArray[np.uint32]:
        """Its own tokens."""
        generator = np.random.default_rng((_SEED, self.key))
        return generator.integers(0, VOCABULARY, self.blocks * BLOCK, dtype=np.uint32)

    def prompt(self) -> NDArray[np.uint32]:
        """All tokens from the start of the prompt."""
        own = self.tokens()
        return own if self.parent is None else np.concatenate((self.parent.prompt(), own))

    def hashes(self) -> list[int]:
        """The engine's hash of each of its own blocks: equal on every engine, as with vLLM's fixed seed."""
        mixed = np.arange(1, self.blocks + 1, dtype=np.uint64) + np.uint64(self.key * BLOCKS_MAX)
        for _ in range(2):
            mixed = (mixed ^ (mixed >> _SHIFT)) * _GOLDEN
        hashes: list[int] = mixed.tolist()
        return hashes

    def parent_hash(self) -> int | None:
        """The engine's hash of the block before its first."""
        return None if self.parent is None else self.parent.hashes()[-1]
