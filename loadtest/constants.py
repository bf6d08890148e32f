"""What `kvindexer plan` counts with, out of the results, in `indexer/sizing/measured.json`.

A test holds the two to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.sizing.measured import FILE, Constant, Measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtest.report import Result, Row

SCENARIOS: Final = ("memory", "ingest", "lookups", "store", "rebuild", "replicas", "idle-sources")
_KEPT: Final = ("cpu", "cores", "python", "version", "commit", "date")
_BATCHES: Final = (1, 8, 16, 32, 64, 512)
_LENGTHS: Final = (512, 8_192, 131_072)
_FLEETS: Final = ("8 sources, 1,000,000 pairs", "64 sources, 1,000,000 pairs")
_FLEET_SOURCES: Final = (8, 64)
_DIGITS: Final = 4
"""That count of a figure."""


def write(results: Iterable[Result]) -> None:
    """Anew."""
    FILE.write_bytes(encoded(results))


def encoded(results: Iterable[Result]) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(measured(results)), indent=1) + b"\n"


def measured(results: Iterable[Result]) -> Measured:
    """All constants. Raises KeyError where a scenario, table or row is not there."""
    by_name = {result.scenario: result for result in results}
    return Measured(
        conditions={
            name: {key: str(by_name[name].conditions[key]) for key in _KEPT} | {"sizes": _sizes(by_name[name])}
            for name in SCENARIOS
        },
        constants={
            **_memory(by_name["memory"]),
            **_ingest(by_name["ingest"]),
            **_lookups(by_name["lookups"]),
            **_store(by_name["store"], by_name["rebuild"]),
            **_replicas(by_name["replicas"]),
            **_idle(by_name["idle-sources"]),
        },
        apply_us={batch: _apply(by_name["ingest"], f"1 × {batch} blocks, as many removed") for batch in _BATCHES},
        lookup_us={tokens: _lookup(by_name["lookups"], _FLEETS[1], tokens) for tokens in _LENGTHS},
    )


def _memory(result: Result) -> dict[str, Constant]:
    rows = result.tables["Resident memory after churn"]
    mirror, maps = _row(rows, what="mirror"), _row(rows, what="reverse maps")
    whole, idle = (
        _row(rows, what="whole service, over its idle size"),
        _row(rows, what="whole service, idle with its sources"),
    )
    unique_a_pair = _number(mirror, "count") / _number(maps, "count")
    rest = _number(whole, "bytes") - _number(maps, "bytes") - _number(mirror, "bytes") * unique_a_pair
    return {
        "mirror_bytes": _constant(_number(mirror, "bytes"), "bytes a unique block", "memory: mirror"),
        "map_bytes": _constant(_number(maps, "bytes"), "bytes a block and engine", "memory: reverse maps"),
        "rest_bytes": _constant(rest, "bytes a block and engine", "memory: whole service, less mirror and maps"),
        "idle_mib": _constant(_number(idle, "MiB"), "MiB", "memory: whole service, idle"),
    }


def _ingest(result: Result) -> dict[str, Constant]:
    factor = _apply(result, "1 × 16 blocks, as many removed") / _apply(result, "1 × 16 blocks")
    return {"removals_factor": _constant(factor, "times", "ingest: 16 blocks a batch, with removals and without")}


def _apply(result: Result, batch: str) -> float:
    rows = next(rows for title, rows in result.tables.items() if title.startswith("Applied from real sockets"))
    return _rounded(_number(_row(rows, batch=batch), "us CPU/block"))


def _lookups(result: Result) -> dict[str, Constant]:
    few, many = (_lookup(result, fleet, _LENGTHS[0]) for fleet in _FLEETS)
    slope = (many - few) / (_FLEET_SOURCES[1] - _FLEET_SOURCES[0])
    return {
        "lookup_sources": _constant(_FLEET_SOURCES[1], "sources", "lookups: at which lookup_us was measured"),
        "lookup_us_a_source": _constant(max(slope, 0.0), "us", "lookups: 512 tokens, 8 and 64 sources"),
    }


def _lookup(result: Result, fleet: str, tokens: int) -> float:
    """JSON ids, 16 connections."""
    return _rounded(_number(_row(result.tables[fleet], tokens=tokens, form="JSON ids", conns=16), "CPU us"))


def _store(store: Result, rebuild: Result) -> dict[str, Constant]:
    (rebuilt,) = rebuild.tables.values()
    bytes_ = [_number(row, "per pair") for row in store.tables["Bytes"]]
    bytes_ += [_number(row, "bytes a pair") for row in rebuilt]
    seconds = [_number(row, "seconds") / _number(row, "pairs") for row in rebuilt]
    return {
        "store_bytes": _constant(max(bytes_), "bytes a block and engine", "store, rebuild: the most of all stores"),
        "load_s": _constant(max(seconds), "s a block and engine", "rebuild: the slowest"),
    }


def _replicas(result: Result) -> dict[str, Constant]:
    (rows,) = result.tables.values()
    alone = _number(_row(rows, replicas=1), "CPU s a million blocks")
    others = [row for row in rows if _number(row, "replicas") > 1]
    follow = [(_number(row, "CPU s a million blocks") - alone) / (_number(row, "replicas") - 1) for row in others]
    shares = [[int(part) for part in str(row["sources of each"]).split()] for row in others]
    return {
        "own_us": _constant(alone, "us a block", "replicas: the only replica, 16 blocks a batch, none removed"),
        "follow_us": _constant(max(follow), "us a block", "replicas: what each further one adds, standby included"),
        "store_us": _constant(max(_number(row, "store") for row in rows), "us a block", "replicas: the store"),
        "uneven": _constant(
            max(max(share) * len(share) / sum(share) for share in shares),
            "times an even share",
            "replicas: sources of the one that has most",
        ),
    }


def _idle(result: Result) -> dict[str, Constant]:
    (rows,) = result.tables.values()
    sources = float(str(result.sizes["sources"]))
    alone = _row(rows, replicas=1)
    return {
        "source_kib": _constant(max(_number(row, "KiB a source") for row in rows), "KiB", "idle-sources"),
        "source_cpu": _constant(_number(alone, "CPU") / sources, "cores", "idle-sources: 1,000 at rest"),
        "source_files": _constant(_number(alone, "open files") / sources, "open files", "idle-sources"),
    }


def _row(rows: Sequence[Row], **wanted: object) -> Row:
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    if not found:
        raise KeyError(wanted)
    return found[0]


def _number(row: Row, column: str) -> float:
    return float(row[column] or 0)


def _constant(value: float, unit: str, of: str) -> Constant:
    return Constant(value=_rounded(value), unit=unit, of=of)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _sizes(result: Result) -> str:
    return ", ".join(f"{name} {value}" for name, value in result.sizes.items())
