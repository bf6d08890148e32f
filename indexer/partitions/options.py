"""How followers behave, and what is told of them."""

from __future__ import annotations

from typing import Literal

import msgspec

from indexer.store.rebuild import LoadOptions


class FollowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds.

    `load`: steps of reading maps. `count`: journal entries taken at once. `block_s`: a wait for the next one, on
    one server; `poll_s` between two looks, in a cluster. `look_s` between two looks whether the store went back.
    `trusted_s`: an entry that came at most so long after its journal was seen at its end is as fresh as it says; an
    older one may have lain there. `rest_s`: after a failure, doubled each time up to `rest_max_s`. `retain_s`: how
    long a source is kept that a lost registry no longer names. `models`: those whose sources are followed, None: all.
    `queue_bytes`: of changes a partition, that wait for
    maps to be read; beyond, its journal is read on when there is room.
    """

    load: LoadOptions = LoadOptions(count=500, in_flight=3)
    count: int = 256
    block_s: float = 0.25
    poll_s: float = 0.005
    look_s: float = 1.0
    trusted_s: float = 1.0
    rest_s: float = 0.1
    rest_max_s: float = 5.0
    retain_s: float = 3_600.0
    models: frozenset[str] | None = None
    queue_bytes: int = 32 << 20


PartitionState = Literal["loading", "following", "lost"]


class PartitionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a followed partition is.

    `loading`: sources are still being read. `lost`: the store does not answer for it. `loaded` of the `sources` that
    are known follow the journal; `passed_over` are registered, and of models that are not followed. `position` is the
    entry applied last; `age_s` the time since one came, None before the first. `reloads` by reason
    (store/following.py).
    """

    partition: int
    state: PartitionState
    sources: int
    loaded: int
    position: str
    age_s: float | None
    reloads: dict[str, int]
    passed_over: int = 0
