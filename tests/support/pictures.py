"""Pictures at random, and what must stand when one of them is the latest: a naive model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.index.registry import normal_name
from tests.support.telling import found

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from indexer.discovery.found import Found
    from indexer.model import Descriptor, SourceId

NAMES: Final = ("u", "v", "w", "x", "y", "z")


def anything(chance: random.Random) -> Found:
    """One source."""
    pod = chance.choice("abcdef")
    return found(
        pod,
        dp_rank=chance.choice((0, 0, 0, 1)),
        address=chance.choice((None, None, "h:1", "h:2")),
        aliases=tuple(chance.sample(NAMES, chance.randrange(3))),
        endpoint=f"tcp://h:{chance.randrange(1, 3)}",
        ready=chance.random() < 0.8,
        life=chance.choice(("", "1", "2")),
    )


def standing_after(told: Mapping[SourceId, Found], others: Iterable[Descriptor]) -> dict[SourceId, Found]:
    """By the rules alone, one source after the other."""
    pods_of: dict[str, set[str]] = {}
    fixed = {each.id: each for each in others}
    for each in [*(each.descriptor for each in told.values()), *fixed.values()]:
        for name in (each.pod, each.address, *each.aliases):
            if name is not None:
                pods_of.setdefault(normal_name(name), set()).add(each.pod)
    owner: dict[str, str] = {}
    for each in fixed.values():
        owner |= dict.fromkeys((each.pod, *each.aliases), each.pod)
    ends: dict[SourceId, Found] = {}
    for key in sorted(told):
        each = told[key].descriptor
        firm = [each.pod, *([] if each.address is None else [each.address])]
        if key in fixed or any(owner.get(name, each.pod) != each.pod for name in firm):
            continue
        own = tuple(a for a in each.aliases if owner.get(a, each.pod) == each.pod and len(pods_of[a]) == 1)
        owner |= dict.fromkeys((*firm, *own), each.pod)
        ends[key] = msgspec.structs.replace(told[key], descriptor=msgspec.structs.replace(each, aliases=own))
    return ends
