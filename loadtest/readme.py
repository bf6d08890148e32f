"""The numbers that people read: a short choice of the results in the README, all of them in RESULTS.md.

The README's stand between marks, in "How fast", of answers while parts fail in "When parts fail", and of what routing
wins in "From a router"; nothing else of it is touched. What is missed is named in RESULTS.md; why, is for a person to
write below the marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from loadtest.report import load_all, machine_line, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from loadtest.report import Result, Row

BEGIN: Final = "<!-- numbers: python -m loadtest report --readme -->"
END: Final = "<!-- numbers end -->"
FAULTS_BEGIN: Final = "<!-- faults: python -m loadtest report --readme -->"
FAULTS_END: Final = "<!-- faults end -->"
ROUTING_BEGIN: Final = "<!-- routing: python -m loadtest report --readme -->"
ROUTING_END: Final = "<!-- routing end -->"
HEAD: Final = (
    "# Results of the load tests\n\nMade by `python -m loadtest report --readme` out of `loadtest/results`.\n\n"
)
CONNECTIONS: Final = 16
_LOOKUP_COLUMNS: Final = {
    "tokens": "tokens",
    "form": "form",
    "lookups/s": "lookups/s",
    "p50 us": "p50 us",
    "p99 us": "p99 us",
    "share": "of the null route",
    "CPU share": "by CPU",
    "with events: lookups/s": "lookups/s with events",
    "p99 us ": "p99 us with events",
}


def rewrite(readme: Path, all_of_them: Path) -> None:
    """Put the present results into both files. Raises ValueError where the README's marks are missing."""
    results = load_all()
    text = _between(readme, readme.read_text(), (BEGIN, END), choice(results))
    text = _between(readme, text, (FAULTS_BEGIN, FAULTS_END), faults(results))
    text = _between(readme, text, (ROUTING_BEGIN, ROUTING_END), routing(results))
    readme.write_text(text)
    all_of_them.write_text(HEAD + numbers(results))


def _between(readme: Path, text: str, marks: tuple[str, str], told: str) -> str:
    before, begin, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{readme.name} lacks the marks {marks[0]} and {marks[1]}")
    return f"{before}{begin}\n\n{told}\n{end}{after}"


def faults(results: Sequence[Result]) -> str:
    """The README's text on answers while parts fail: the faults that differ most, in few columns."""
    return "\n\n".join(part for result in results if result.scenario == "trust" for part in _main_faults(result)) + "\n"


def routing(results: Sequence[Result]) -> str:
    """The README's text on what routing by prefix wins: one trace over one fleet, and how many others there are."""
    return "\n\n".join(part for result in results if result.scenario == "simulate" for part in _routed(result)) + "\n"


def choice(results: Sequence[Result]) -> str:
    """The README's text: how fast it answers, by which way, and beside whom."""
    by_name = {result.scenario: result for result in results}
    parts = [part for name in _CHOSEN if name in by_name for part in _PARTS[name](_ends_of(by_name[name]))]
    targets = [target for result in results for target in result.targets]
    met = f"{sum(target.met for target in targets)} of {len(targets)} targets are met. " if targets else ""
    parts.append(f"{met}All tables, of events, memory, the store and several replicas, too: `loadtest/RESULTS.md`.")
    parts += [f"Measured on: {machine_line(result)}." for result in results[:1]]
    return "\n\n".join(parts) + "\n"


def _ends_of(result: Result) -> Result:
    """With its first and its last table: of lookups, the smallest and the largest fleet."""
    titles = list(result.tables)
    ends = {title: result.tables[title] for title in dict.fromkeys((*titles[:1], *titles[-1:]))}
    return msgspec.structs.replace(result, tables=ends)


def numbers(results: Sequence[Result]) -> str:
    """The text of RESULTS.md below its head, from all results there are."""
    by_name = {result.scenario: result for result in results}
    parts = [part for name, write in _PARTS.items() if name in by_name for part in write(by_name[name])]
    missed = [target for result in results for target in result.targets if not target.met]
    count = sum(len(result.targets) for result in results)
    if count:
        parts.append(f"{count - len(missed)} of {count} targets are met." + (" Missed:" if missed else ""))
    if missed:
        parts.append("\n".join(f"- {target.line().removeprefix('MISSED').strip()}" for target in missed))
    parts += [f"Measured on: {machine_line(result)}." for result in results[:1]]
    return "\n\n".join(parts) + "\n"


def _lookups(result: Result) -> list[str]:
    intro = (
        f"**Lookups over HTTP**, {CONNECTIONS} connections, service on one core. The null route is bare ASGI in the "
        "same process: same body read, constant answer of equal size. With events: 20,000 blocks/s arriving."
    )
    parts = [intro]
    for title, rows in result.tables.items():
        chosen: list[Row] = [
            {shown: row.get(column) for column, shown in _LOOKUP_COLUMNS.items()}
            for row in rows
            if row.get("conns") == CONNECTIONS
        ]
        parts += [f"{title}:", table(chosen)]
    return parts


def _ingest(result: Result) -> list[str]:
    applied, latency = result.tables.values()
    intro = (
        "**Events applied** from real sockets, a CPU second of the whole process, against what the plain MessagePack "
        "decoder alone does with the same messages on the same core:"
    )
    return [
        intro,
        table(_without(applied, "shares of rounds")),
        "**From publish to a lookup that sees it**, microseconds, beside a bare PUB/SUB hop:",
        table(latency),
    ]


def _stall(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    return ["**Iterations of the event loop**, milliseconds, while the index grows to 3 million blocks:", table(rows)]


def _memory(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    return ["**Memory** after churn, 8 sources, half of what each holds shared with another:", table(rows)]


def _soak(result: Result) -> list[str]:
    rows = result.tables["Resident memory"]
    picked = [rows[0], *rows[4:-2:5], *rows[-2:]]
    curve = ", ".join(f"{row['after']} {row['MiB']} MiB" for row in picked)
    return [f"**Soak**, {result.sizes['blocks churned']:,} blocks through a bounded live set: {curve}."]


def _store(result: Result) -> list[str]:
    writes, reads, sizes = result.tables.values()
    intro = (
        "**Redis mode: writes** in runs of 16 blocks, map, journal and cursor in one step, against bare pipelined HSET "
        "of the same fields by the same client:"
    )
    return [
        intro,
        table(writes),
        "**Reading a map** with every field decoded, against bare HSCAN of the same hashes:",
        table(_without(reads, "longest decode ms")),
        "**Bytes** in the store a (block, engine) pair, all segments together:",
        table(sizes),
    ]


def _visible(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    intro = (
        "**From an engine's publish to a lookup at another replica**, microseconds, while "
        f"{result.sizes['blocks/s beside']:,} blocks/s arrive, beside a bare hop (XADD, XREAD):"
    )
    return [intro, table(rows)]


def _rebuild(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    return ["**A replica that starts** beside a full store, until it has every map:", table(rows)]


def _soak_store(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    intro = f"**Soak in Redis mode**, {result.sizes['blocks churned']:,} blocks through a bounded live set:"
    return [intro, table([rows[0], *rows[4:-1:5], rows[-1]])]


def _replicas(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    intro = (
        "**Several replicas**, 60 busy sources shared among them, batches of 16 blocks. `blocks/s`: until all have "
        "all of it and it is written; CPU seconds a million blocks of all replicas, of the busiest one and of "
        "the store. Then from publish to a lookup at the slowest replica."
    )
    return [intro, table(rows), *result.remarks]


def _takeover(result: Result) -> list[str]:
    killed, leaving = result.tables.values()
    kill = (
        f"**A replica that owns is killed** (SIGKILL) beside {result.sizes['blocks/s']:,} blocks/s, engines without "
        "replay: until another replica answers with what was published after the kill:"
    )
    leave = (
        "**One that leaves** in order: how long any of its sources stood still elsewhere at most, and the same before:"
    )
    return [kill, table(killed), leave, table(leaving)]


def _idle_sources(result: Result) -> list[str]:
    ((title, rows),) = result.tables.items()
    return [f"**{title}**, no batch, no replay endpoint; then a second replica shares them:", table(rows)]


def _sidecar(result: Result) -> list[str]:
    started, passed = result.tables.values()
    intro = (
        "**A sidecar** (`--roles lookup --follow MODEL`, on a Unix socket alone) beside a full store of two models: "
        "its memory, that of its own without pages of files, which all processes of an image share, and its start:"
    )
    over = "What a million blocks cost it of models that it passes over, one journal for all:"
    return [intro, table(started), over, table(passed)]


def _doors(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    intro = (
        f"**Every way to ask**, prompts of {result.sizes['tokens']:,} tokens, {result.sizes['sources']} sources, "
        "service and generator on a core each. The null route takes the same bytes in the same process and gives as "
        "many back; `CPU share`: its CPU time a request, of that of the lookups in one. gRPC's Python client is as "
        "slow as its server, so rates there are of the two together."
    )
    shown: list[Row] = [{name: cell for name, cell in row.items() if name not in {"p99 us", "null/s"}} for row in rows]
    return [intro, table(shown), *result.remarks]


def _gateways(result: Result) -> list[str]:
    intro = (
        f"**Behind Envoy**, with the configurations of `k8s/envoy`: prompts of {result.sizes['tokens']:,} token ids, "
        "three engines that answer at once; the service on a core of its own, Envoy, engines and generator together on "
        "another. `added`: to the median of Envoy alone; `a core of the service carries`: by its CPU time a request:"
    )
    parts = [intro]
    for title, rows in result.tables.items():
        parts += [f"{title}:", table(rows)]
    return [*parts, *result.remarks]


def _dynamo(result: Result) -> list[str]:
    intro = (
        "**Beside Dynamo's own indexer** (1.6.1, from its wheel): the same events, prompts, client and core, in turns; "
        f"{result.sizes['sources']} workers, {result.sizes['pairs']:,} pairs, {result.sizes['connections']} "
        "connections. What counts is CPU time a request; `/query` and `/query_by_hash` of ours are drop-in, the rest "
        "is `/v1/lookup`, which answers for every source and not only for those that hold something:"
    )
    parts = [intro]
    for title, rows in result.tables.items():
        parts += [f"{title}:", table(rows)]
    return parts


def _main_faults(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    shown = [_short(row) for row in rows if row.get("what fails") in MAIN_FAULTS]
    asked = sum(int(row.get("answers") or 0) for row in rows)
    violations = sum(int(row.get("violations") or 0) for row in rows)
    intro = (
        f"Recorded vLLM engines ({result.sizes['recordings']}) played to real services; of {asked:,} answers to "
        f"{len(rows)} faults each entry is compared with what its engine held. Violations, entries that call "
        "themselves certain (`live`, `exact`) and are wrong at the `sequence` they name: "
        f"{violations:,}. *Could not be known*: certain and wrong, as nothing that the engine had published told (its "
        "last message was lost, it emptied its cache or began anew in silence, it never says what it evicts), with how "
        "long it took, by the pace of the trial (an engine is idle for a second after a silent reset), and what told; "
        "the recordings have restarts and resets of their own. False and lost hit tokens are sums over all settled "
        "answers, whatever they say of themselves, with their share of the true ones."
    )
    return [intro, table(shown), "All faults and columns: `loadtest/RESULTS.md`."]


def _short(row: Row) -> Row:
    messages = row.get("messages until then")
    by, until = row.get("noticed by"), row.get("until noticed s")
    return {
        "what fails": row.get("what fails"),
        "replay": row.get("replay"),
        "exact %": row.get("exact %"),
        "violations": row.get("violations"),
        "could not be known": row.get("could not be known"),
        "until noticed": f"{f'{messages} messages' if messages else f'{until:.3g} s'}, {by}" if by else until,
        "false hit tokens": _sum(row, "false hit tokens", "false %"),
        "lost hit tokens": _sum(row, "lost hit tokens", "lost %"),
        "healed within s": row.get("healed within s"),
    }


def _sum(row: Row, tokens: str, share: str) -> str | None:
    count = row.get(tokens)
    return f"{count:,} ({row.get(share):.3g} %)" if isinstance(count, int) and count else "0"


def _trust(result: Result) -> list[str]:
    (rows,) = result.tables.values()
    intro = (
        f"**Answers while parts fail**: recorded vLLM engines ({result.sizes['recordings']}) played to real services, "
        "each entry compared with what its engine held. A violation is an entry that calls itself certain (`live`, "
        "`exact`) and is wrong at the `sequence` it names. `outrun`: certain and right there, but no more, as the next "
        "message was on its way, or told to a replica that died. `could not be known`: certain and wrong, as nothing "
        "that the engine had published told: its last message was lost, it emptied its cache or began anew and had not "
        "spoken since, or it never says what it evicts and nothing has shown that yet; with a replay endpoint, what is "
        "lost is a violation after a probe interval and a second. `tokens of these`: by which they are wrong, each "
        "entry counted; `until noticed`: from then on, by the pace of the trial, until an answer is doubted or right, "
        "`never` where that did not come; `noticed by` what; `messages until then`: of engines that lie. `noticed "
        "within`: from what could tell (a probe due, the engine's next message, the end of a lease). Hit tokens are "
        "sums over all settled answers, whatever they say of themselves, beside the engines' true ones."
    )
    return [intro, table(rows)]


def _routed(result: Result) -> list[str]:
    (name, rows), *_ = result.tables.items()
    met = sum(target.met for target in result.targets)
    intro = f"Simulated: {name}. {_pace(result)}"
    outro = (
        f"Over all traces, fleets and caches {met} of {len(result.targets)} targets are met: the blend hits no less "
        "than round robin does, and nobody waits longer for it. All cells, and what is missed: `loadtest/RESULTS.md`."
    )
    return [intro, table(rows), outro]


def _simulate(result: Result) -> list[str]:
    intro = (
        f"**What routing by prefix wins**, simulated: {result.sizes['traces']}; LRU caches. {_pace(result)} The blend "
        "is what `/v1/recommend` does, with loads that are told at once, or are read from metrics each second. The "
        "model is told in `indexer/decisions/0039-a-simulated-fleet.md`. Blocks are the trace's: 512 tokens, in the "
        "Weka file 64."
    )
    parts = [intro]
    for title, rows in result.tables.items():
        parts += [f"{title}:", table(rows)]
    return parts


def _pace(result: Result) -> str:
    sizes = result.sizes
    return (
        f"A pod computes {sizes['prefill tokens/s a pod']:,.0f} tokens a second; what comes is "
        f"{sizes['utilisation without hits']:.0%} of what all could compute without hits."
    )


def _without(rows: Sequence[Row], column: str) -> list[Row]:
    return [{name: cell for name, cell in row.items() if name != column} for row in rows]


_PARTS: Final[Mapping[str, Callable[[Result], list[str]]]] = {
    "lookups": _lookups,
    "doors": _doors,
    "gateways": _gateways,
    "dynamo": _dynamo,
    "ingest": _ingest,
    "stall": _stall,
    "memory": _memory,
    "soak": _soak,
    "store": _store,
    "visible": _visible,
    "rebuild": _rebuild,
    "soak-store": _soak_store,
    "replicas": _replicas,
    "takeover": _takeover,
    "idle-sources": _idle_sources,
    "sidecar": _sidecar,
    "trust": _trust,
    "simulate": _simulate,
}
_CHOSEN: Final = ("lookups", "doors", "gateways", "dynamo")
MAIN_FAULTS: Final = frozenset(
    {
        "nothing lost",
        "0.1% of messages lost",
        "1.0% of messages lost",
        "5.0% of messages lost",
        "engines killed",
        "service killed",
        "owner of two replicas killed",
        "last message of an idle engine lost",
        "silent reset",
        "another block size told always",
        "no removals told, capacity known",
        "no removals told, capacity unknown",
        "no removals told of the cpu tier",
    }
)
"""Those that the README shows, of the scenario `trust`."""
