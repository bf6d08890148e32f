"""What two services say of one prompt, side by side: where they differ, and what they say of themselves to explain it.

Pure. Tokens are counted as every service of this kind counts them: the longest prefix in gpu memory; in gpu or cpu; in
those or storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

TIERS: Final = ("gpu", "cpu", "storage")
PLAIN: Final = frozenset({None, "no_match", "below_block_size"})
"""Reasons of a 0 that is known to be right."""
UNEXPLAINED: Final = "unexplained"


class Held(NamedTuple):
    """What one service says of one pod, or of one rank of it. What a foreign service does not tell is None."""

    gpu: int = 0
    cpu: int = 0
    storage: int = 0
    bound: str | None = None
    reason: str | None = None
    generation: str | None = None
    sequence: int | None = None


Name = tuple[str, int | None]
"""A pod and its rank; None: the pod as a whole."""


class Said(NamedTuple):
    """The answer of one service. `complete`: who is not in it is not known there, else holds nothing."""

    held: Mapping[Name, Held]
    complete: bool
    ranked: bool = True
    """Whether it tells of every tier of each rank."""


class Difference(msgspec.Struct, frozen=True):
    """One number that differs."""

    prompt: int
    prompt_tokens: int
    pod: str
    dp_rank: int | None
    tier: str
    a: int | None
    b: int | None
    reason: str


class _Rank(msgspec.Struct, kw_only=True):
    pod: str
    dp_rank: int = 0
    prefix: dict[str, int]
    bound: str | None = None
    reason: str | None = None
    generation: str | None = None
    sequence: int | None = None


class _Ours(msgspec.Struct):
    pods: list[_Rank]


class _Instance(msgspec.Struct):
    gpu: int = 0
    cpu: int = 0
    disk: int = 0


class _Dynamos(msgspec.Struct):
    instances: dict[str, _Instance]


_ours: Final = msgspec.json.Decoder(_Ours).decode
_dynamos: Final = msgspec.json.Decoder(_Dynamos).decode


def said_by_ours(answer: bytes) -> Said:
    """Of `POST /v1/lookup`. Raises `msgspec.MsgspecError`."""
    held: dict[Name, Held] = {}
    for rank in _ours(answer).pods:
        gpu, cpu, storage = (rank.prefix.get(tier, 0) for tier in TIERS)
        held[rank.pod, rank.dp_rank] = Held(gpu, cpu, storage, rank.bound, rank.reason, rank.generation, rank.sequence)
    return Said(held, complete=True)


def said_by_dynamos(answer: bytes) -> Said:
    """Of Dynamo's `POST /query`, which leaves out who holds nothing. Raises `msgspec.MsgspecError`."""
    found = _dynamos(answer).instances
    return Said({(pod, None): Held(i.gpu, i.cpu, i.disk) for pod, i in found.items()}, complete=False, ranked=False)


def differences(prompt: int, prompt_tokens: int, a: Said, b: Said, names: Mapping[str, str]) -> list[Difference]:
    """Every number that differs. `names`: what `a` calls a pod that `b` calls otherwise, by the name of `b`."""
    b = b._replace(held={(names.get(pod, pod), rank): held for (pod, rank), held in b.held.items()})
    if not (a.ranked and b.ranked):
        a, b = _pods(a), _pods(b)
    found = []
    for pod, rank in sorted({*a.held, *b.held}, key=str):
        of_a, of_b = a.held.get((pod, rank)), b.held.get((pod, rank))
        for tier, here, there in _numbers(of_a, of_b, a, b):
            reason = _reason(of_a, of_b, here, there)
            found.append(Difference(prompt, prompt_tokens, pod, rank, tier, here, there, reason))
    return found


def _numbers(of_a: Held | None, of_b: Held | None, a: Said, b: Said) -> Iterator[tuple[str, int | None, int | None]]:
    for tier in TIERS:
        here, there = _number(of_a, tier, a), _number(of_b, tier, b)
        if here != there and (here or there):  # who is not known there and holds nothing here is none
            yield tier, here, there


def _number(held: Held | None, tier: str, said: Said) -> int | None:
    if held is None:
        return None if said.complete else 0
    number: int = getattr(held, tier)
    return number


def _reason(of_a: Held | None, of_b: Held | None, here: int | None, there: int | None) -> str:
    """What the two say of themselves that makes it no wonder; the first that applies."""
    if here is None:
        return "a: pod not known"
    if there is None:
        return "b: pod not known"
    if of_a is None or of_b is None:  # of a foreign service that holds nothing
        return _own(of_a, of_b) or UNEXPLAINED
    return _own(of_a, of_b) or _position(of_a, of_b) or UNEXPLAINED


def _own(of_a: Held | None, of_b: Held | None) -> str | None:
    sides = [(side, held) for side, held in (("a", of_a), ("b", of_b)) if held is not None]
    reasons = (f"{side}: {held.reason}" for side, held in sides if held.reason not in PLAIN)
    bounds = (f"{side}: bound {held.bound}" for side, held in sides if held.bound not in {None, "exact"})
    return next(reasons, None) or next(bounds, None)


def _position(of_a: Held, of_b: Held) -> str | None:
    if of_a.sequence is None or of_b.sequence is None:
        return None
    if of_a.generation != of_b.generation:
        return "another generation"
    if of_a.sequence == of_b.sequence:
        return None
    return f"{'a' if of_a.sequence < of_b.sequence else 'b'}: behind"


def _pods(said: Said) -> Said:
    """By pod alone: in each tier the best of its ranks, and what the first of them says of itself."""
    held: dict[Name, Held] = {}
    for (pod, _), rank in said.held.items():
        best = held.setdefault((pod, None), rank)
        held[pod, None] = best._replace(**{tier: max(getattr(best, tier), getattr(rank, tier)) for tier in TIERS})
    return said._replace(held=held)
