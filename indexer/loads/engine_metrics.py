"""How busy an engine says that it is, out of its metrics: vLLM, SGLang, TensorRT-LLM alone and behind Triton. Pure.

Only the lines that count are looked at: an engine has hundreds, and is asked once a second.

    ranks      data-parallel ones are told apart by a label (vLLM `engine`, SGLang `dp_rank`); a rank that is not named
               is the only one that is, or is not told of
    replicas   tensor-parallel ranks of SGLang may each tell the same: the largest counts. Several models of one server
               are added up
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.exposition import samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.exposition import Sample

LINES_MAX: Final = 4_096
"""Of one answer: a thousand ranks, and three numbers of each."""
REQUESTS_MAX: Final = 1e9
"""Nobody has as many: what is beyond is no number of requests."""


class EngineLoad(NamedTuple):
    """Of one rank: requests, and the share of its cache that is in use; None: not told."""

    running: float
    waiting: float
    kv_usage: float | None


class Series(NamedTuple):
    """A metric, and what its label of a name must be."""

    name: str
    label: str = ""
    value: str = ""

    def is_of(self, sample: Sample) -> bool:
        """Whether that line is one of it."""
        return sample.name == self.name and (not self.label or sample.labels.get(self.label) == self.value)


class Family(NamedTuple):
    """What one kind of engine calls them; of `usage` the first that is there counts."""

    prefix: bytes
    running: Series
    waiting: Series
    usage: tuple[Series, ...]

    @property
    def names(self) -> set[str]:
        """Of all its metrics."""
        return {each.name for each in (self.running, self.waiting, *self.usage)}


FAMILIES: Final = (
    Family(
        b"vllm:num_requests_",
        Series("vllm:num_requests_running"),
        Series("vllm:num_requests_waiting"),
        (Series("vllm:kv_cache_usage_perc"), Series("vllm:gpu_cache_usage_perc")),
    ),
    Family(
        b"sglang:num_",
        Series("sglang:num_running_reqs"),
        Series("sglang:num_queue_reqs"),
        (Series("sglang:token_usage"),),
    ),
    Family(
        b"trtllm_num_requests_",
        Series("trtllm_num_requests_running"),
        Series("trtllm_num_requests_waiting"),
        (Series("trtllm_kv_cache_utilization"),),
    ),
    Family(
        b"nv_trt_llm_request_metrics",
        Series("nv_trt_llm_request_metrics", "request_type", "scheduled"),
        Series("nv_trt_llm_request_metrics", "request_type", "waiting"),
        (Series("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"),),
    ),
)
_RANK_LABELS: Final = ("engine", "dp_rank")


class Ranks:
    """What one answer tells, by rank; "" for lines that name none."""

    def __init__(self, by_rank: Mapping[str, EngineLoad]) -> None:
        self._by_rank = by_rank

    def __bool__(self) -> bool:
        return bool(self._by_rank)

    def of(self, dp_rank: int) -> EngineLoad | None:
        """Of that rank; None where it tells of others."""
        found = self._by_rank.get(str(dp_rank))
        if found is None and len(self._by_rank) == 1:
            (found,) = self._by_rank.values()
        return found


def read_loads(content: bytes) -> Ranks:
    """Loads by rank; none where it is no such engine's."""
    for family in FAMILIES:
        if family.prefix in content:
            read = _read(family, content)
            if read:
                return Ranks(read)
    return Ranks({})


def _read(family: Family, content: bytes) -> dict[str, EngineLoad]:
    found = list(samples(_lines_of(content, family.names), family.names))
    running, waiting = _sums(found, family.running), _sums(found, family.waiting)
    usage = next(filter(None, (_largest(found, each) for each in family.usage)), {})
    odd = {
        _rank(each) for each in found if (family.running.is_of(each) or family.waiting.is_of(each)) and _is_odd(each)
    }
    return {
        rank: EngineLoad(running.get(rank, 0.0), waiting.get(rank, 0.0), usage.get(rank))
        for rank in (running.keys() | waiting.keys()) - odd
    }


def _is_odd(sample: Sample) -> bool:
    """No number of requests: how busy its rank is nobody knows, and least of all that it is idle."""
    return not 0 <= sample.value < REQUESTS_MAX


def _lines_of(content: bytes, names: Iterable[str]) -> str:
    """Those that begin with one of these; they stand together in an answer."""
    picked: list[bytes] = []
    for name in names:
        start = 0 if content.startswith(name.encode()) else _line_after(content, name, 0)
        while start >= 0 and len(picked) < LINES_MAX:
            end = content.find(b"\n", start)
            picked.append(content[start : len(content) if end < 0 else end])
            start = -1 if end < 0 else _line_after(content, name, end)
    return b"\n".join(picked).decode("utf-8", "replace")


def _line_after(content: bytes, name: str, at: int) -> int:
    """Where the next line that begins so does; -1 where none does."""
    found = content.find(b"\n" + name.encode(), at)
    return -1 if found < 0 else found + 1


def _sums(found: Iterable[Sample], series: Series) -> dict[str, float]:
    """By rank, all models together; of one model the largest."""
    of_models: dict[tuple[str, str], float] = {}
    for sample in found:
        # SGLang that schedules by priority tells those of each beside all: the label of all is empty.
        is_part = bool(sample.labels.get("priority"))
        if series.is_of(sample) and not is_part and not _is_odd(sample):
            key = _rank(sample), sample.labels.get("model_name", "")
            of_models[key] = max(of_models.get(key, 0.0), sample.value)
    sums: dict[str, float] = {}
    for (rank, _), count in of_models.items():
        sums[rank] = sums.get(rank, 0.0) + count
    return sums


def _largest(found: Iterable[Sample], series: Series) -> dict[str, float]:
    largest: dict[str, float] = {}
    for sample in found:
        if series.is_of(sample) and math.isfinite(sample.value) and sample.value >= 0:
            rank = _rank(sample)
            largest[rank] = max(largest.get(rank, 0.0), min(1.0, sample.value))
    return largest


def _rank(sample: Sample) -> str:
    return next((sample.labels[name] for name in _RANK_LABELS if name in sample.labels), "")
