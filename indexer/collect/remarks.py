"""What an operator reads under `warnings` of a source, as far as its sockets tell."""

from __future__ import annotations

from typing import Final

from indexer import source_words
from indexer.collect.commands import Warn

SHOWN_MAX: Final = 100
"""Characters of a name that somebody else chose which are shown in a remark or a log line."""
NO_REPLAY: Final = Warn("replay", source_words.NO_REPLAY)
REPLAY_SILENT: Final = Warn(
    "replay", "the replay endpoint does not answer in time: lost batches cannot be fetched for now"
)
REPLAY_ANSWERS: Final = Warn("replay", None)
REPLAY_FOREIGN: Final = Warn(
    "replay_foreign", "the replay endpoint has other batches than arrive, as another engine's has: it is not believed"
)
REPLAY_OWN: Final = Warn("replay_foreign", None)
REPLAY_LOSES: Final = Warn(
    "replay_loss", "the engine loses replayed batches without a word (vLLM before 0.33 does): they are asked for again"
)
NEVER_CONNECTED: Final = Warn(
    "silent", "never connected: check the address; an engine told tcp://0.0.0.0 connects instead of binding"
)
NEVER_DELIVERED: Final = Warn("silent", "connected, but never delivered anything yet: are KV events switched on?")
NOT_SILENT: Final = Warn("silent", None)
