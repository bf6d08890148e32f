"""What is held of a prompt, in the originals' words. Pure.

Counts are tokens. Tiers are cumulative: `cpu` is the longest prefix in gpu or cpu, `disk` in those or storage, so that
`disk` is also the longest of all. Who holds nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.lookup import Holding

_TIERS: Final = ("gpu", "cpu", "disk")

_json = msgspec.json.Encoder().encode
_msgpack = msgspec.msgpack.Encoder().encode


class Overlap(msgspec.Struct):
    """One instance, the best of its ranks in each tier. `dp`: what each rank holds in gpu memory."""

    longest_matched: int
    gpu: int
    dp: dict[str, int]
    cpu: int
    disk: int


def dynamos(held: Sequence[Holding]) -> bytes:
    """The answer of Dynamo's indexer. `frequencies` is always empty there, too."""
    scores: dict[str, dict[str, int]] = {}
    instances: dict[str, Overlap] = {}
    for pod, dp_rank, gpu, cpu, disk in held:
        rank = str(dp_rank)
        if gpu:
            of_pod = scores.get(pod)
            if of_pod is None:
                scores[pod] = {rank: gpu}
            else:
                of_pod[rank] = gpu
        known = instances.get(pod)
        if known is None:
            instances[pod] = Overlap(disk, gpu, {rank: gpu}, cpu, disk)
        else:
            _join(known, rank, gpu, cpu, disk)
    return _json({"scores": scores, "frequencies": [], "instances": instances})


def _join(known: Overlap, rank: str, gpu: int, cpu: int, disk: int) -> None:
    known.dp[rank] = gpu
    known.gpu = max(known.gpu, gpu)
    known.cpu = max(known.cpu, cpu)
    known.disk = known.longest_matched = max(known.disk, disk)


def mooncakes(held: Sequence[Holding], tenant: str, *, packed: bool) -> bytes:
    """The answer of Mooncake's conductor.

    It has told the same in two shapes: `instances` with names in small letters, and before that by tenant with names
    in capitals. JSON, which both spoke, carries both; MessagePack, which only the newer one does, that one. A rank's
    count is of gpu memory in the newer one, of all tiers in the older.
    """
    instances: dict[str, dict[str, Any]] = {}
    for pod, dp_rank, gpu, cpu, disk in held:
        known = instances.setdefault(pod, {"longest_matched": 0, "dp": {}, "rank_matches": {}})
        rank = str(dp_rank)
        known["dp"][rank] = gpu
        known["rank_matches"][rank] = {"gpu": gpu, "cpu": cpu, "disk": disk}
    for known in instances.values():
        matches = known["rank_matches"]
        for tier in _TIERS:
            known[tier] = max(match[tier] for match in matches.values())
        known["longest_matched"] = known["disk"]
        if not packed:
            known |= {tier.upper(): known[tier] for tier in _TIERS}
            known["DP"] = {rank: match["disk"] for rank, match in matches.items()}
    if packed:
        return _msgpack({"instances": instances})
    return _json({"instances": instances, tenant: instances})
