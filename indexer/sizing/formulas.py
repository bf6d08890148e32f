"""How much a deployment takes: sums of measured constants, each told with its formula. Pure.

Nothing here is fitted: where a figure was not measured, the nearest one that is dearer stands for it, and what is
assumed is said in the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.sizing import remembered
from indexer.sizing.bounds import PARTITIONS_MAX, REPLICAS_MAX
from indexer.store.budget import cost
from indexer.store.entries import HASH_BYTES, LANES_BYTES

if TYPE_CHECKING:
    from indexer.sizing.measured import Measured

MIB: Final = 1024**2
KIB: Final = 1024
CORE: Final = 0.6
"""Of one core that a replica may be busy: the rest is for what comes at once, and keeps answers quick."""
CORE_ONE_GONE: Final = 0.9
"""The same while one replica is gone."""
REPLICAS_CHOSEN_MAX: Final = 16
"""Beyond them a further one costs more than it takes off the others: the fleet is split instead."""
DEPLOYMENTS_MAX: Final = 256
PARTITIONS_LEAST: Final = 16
PARTITIONS_A_REPLICA: Final = 4
JOURNAL_LEAST: Final = 16 * MIB
JOURNAL_TIMES: Final = 4
"""A journal holds so many times what is written while a replica loads."""
TICKS_A_SECOND: Final = 4
TICK_BYTES: Final = 96
"""Of one source in a tick, at most: its name and facts."""
SOURCES_DEFAULT: Final = 4_096
PER_SOURCE_METRICS_MAX: Final = 1_000
FILES_BESIDE: Final = 512
FILES_USUAL: Final = 1_024
READY_DEFAULT_S: Final = 30.0
_MILLION: Final = 1_000_000


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the deployment is for. `blocks` and `rate` are of each engine; `lookups` of all replicas together.

    `shared`: of an engine's blocks, the part that one other engine holds, too. `models`: so many equal fleets.
    """

    engines: int
    blocks: int
    rate: float
    shared: float = 0.3
    lookups: float = 0.0
    prompt_tokens: int = 8_192
    batch_blocks: int = 16
    models: int = 1
    replicas: int | None = None
    partitions: int | None = None
    store: bool = True
    lease_s: float = 10.0
    margin: float = 1.5

    @property
    def pairs(self) -> int:
        """Blocks of all engines, each counted where it is."""
        return self.engines * self.blocks

    @property
    def unique(self) -> float:
        """Different blocks."""
        return self.pairs * (1 - self.shared / 2) if self.engines > 1 else float(self.pairs)

    @property
    def rate_of_all(self) -> float:
        """Blocks announced a second; as many are taken back."""
        return self.engines * self.rate


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, and how it comes about."""

    name: str
    value: float
    unit: str
    how: str


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that should not stay at its default, or must not be otherwise."""

    key: str
    value: str
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`trouble`: why it cannot be done so; empty where it can.

    `deployments`: into so many the fleet is split; `wanted`, and all figures, are of each of them.
    """

    wanted: Wanted
    deployments: int
    replicas: int
    partitions: int
    trouble: list[str]
    each_replica: list[Item]
    store: list[Item]
    settings: list[Setting]
    assumptions: list[str]


def planned(wanted: Wanted, measured: Measured) -> Plan:
    """The whole of it."""
    deployments = 1 if wanted.replicas else _deployments(wanted, measured)
    wanted = _part(wanted, deployments)
    costs = _Costs(wanted, measured)
    replicas = wanted.replicas or costs.replicas_needed() or REPLICAS_CHOSEN_MAX
    partitions = (wanted.partitions or _partitions(replicas)) if wanted.store else 0
    return Plan(
        wanted=wanted,
        deployments=deployments,
        replicas=replicas,
        partitions=partitions,
        trouble=costs.trouble(replicas),
        each_replica=[*costs.memory(replicas), *costs.cpu_items(replicas), costs.files(replicas)],
        store=costs.store(replicas, partitions) if wanted.store else [],
        settings=_settings(costs, replicas, partitions),
        assumptions=_assumptions(wanted, deployments, replicas),
    )


def _deployments(wanted: Wanted, measured: Measured) -> int:
    """The fewest of which each can be done; 1 where splitting does not help."""
    most = min(wanted.engines, DEPLOYMENTS_MAX)
    return next((count for count in range(1, most + 1) if _Costs(_part(wanted, count), measured).replicas_needed()), 1)


def _part(wanted: Wanted, deployments: int) -> Wanted:
    """Of one of them: a part of the engines, and all lookups, since each knows of its own engines alone."""
    return msgspec.structs.replace(wanted, engines=-(-wanted.engines // deployments))


class _Costs:
    """Of this fleet, with these constants."""

    def __init__(self, wanted: Wanted, measured: Measured) -> None:
        self.wanted = wanted
        self.measured = measured

    # -- CPU -----------------------------------------------------------------------------------------------------------

    @property
    def own_us(self) -> float:
        """A block applied by its owner: with a store it is written, too."""
        apply_us = _at_most(self.measured.apply_us, self.wanted.batch_blocks)
        if not self.wanted.store:
            return apply_us
        return self.measured["own_us"] * self.measured["removals_factor"] * apply_us / self.measured.apply_us[16]

    @property
    def follow_us(self) -> float:
        """A block followed: its announcement and its removal are a change each."""
        return 2 * self.measured["follow_us"]

    @property
    def lookup_us(self) -> float:
        """One lookup; its answer lists every source of the model."""
        base = _at_least(self.measured.lookup_us, self.wanted.prompt_tokens)
        more = self.wanted.engines / self.wanted.models - self.measured["lookup_sources"]
        return base + max(0.0, more) * self.measured["lookup_us_a_source"]

    def share(self, replicas: int) -> float:
        """Of the sources that the replica with most of them owns."""
        if not self.wanted.store:
            return 1.0
        return min(1.0, self.measured["uneven"] / replicas) if replicas > 1 else 1.0

    def events_cores(self, replicas: int) -> float:
        """For events."""
        share, follow_us = self.share(replicas), self.follow_us if self.wanted.store else 0.0
        return self.wanted.rate_of_all * (share * self.own_us + (1 - share) * follow_us) / _MILLION

    def lookups_cores(self, replicas: int) -> float:
        """For lookups, which are spread evenly."""
        return self.wanted.lookups / replicas * self.lookup_us / _MILLION

    def subscribed(self, replicas: int) -> float:
        """Sources that it is connected to: its own, and those it stands by for."""
        return self.wanted.engines * min(1.0, 2 * self.share(replicas))

    def sources_cores(self, replicas: int) -> float:
        """For connections, whatever comes over them."""
        return self.subscribed(replicas) * self.measured["source_cpu"]

    def cores(self, replicas: int) -> float:
        """In all."""
        return self.events_cores(replicas) + self.lookups_cores(replicas) + self.sources_cores(replicas)

    def fits(self, replicas: int) -> bool:
        """Also while one is gone."""
        return self.cores(replicas) <= CORE and (replicas == 1 or self.cores(replicas - 1) <= CORE_ONE_GONE)

    def replicas_needed(self) -> int | None:
        """The fewest, and two at least, of which one may go; None where no number that would be chosen does it."""
        return next((count for count in range(2, REPLICAS_CHOSEN_MAX + 1) if self.fits(count)), None)

    def trouble(self, replicas: int) -> list[str]:
        """Why it cannot be done with so many."""
        if self.fits(replicas):
            return []
        busy = f"each of {replicas} replicas would need {self.cores(replicas):.2f} cores, and one uses one"
        if self.cores(REPLICAS_MAX) > CORE:
            return [
                f"{busy}: no number of replicas does it, because each follows all events (larger batches are cheaper)"
            ]
        return [f"{busy}: at most {CORE:g} are planned for, {CORE_ONE_GONE:g} while one is gone"]

    def cpu_items(self, replicas: int) -> list[Item]:
        """For a person."""
        wanted, share = self.wanted, self.share(replicas)
        how = f"{wanted.rate_of_all:,.0f} blocks/s × {self.own_us:.1f} us"
        if wanted.store:
            how = (
                f"{wanted.rate_of_all:,.0f} blocks/s × ({share:.0%} owned × {self.own_us:.1f} us "
                f"+ {1 - share:.0%} followed × {self.follow_us:.1f} us)"
            )
        return [
            Item(name="CPU for events", value=self.events_cores(replicas), unit="cores", how=how),
            Item(
                name="CPU for lookups",
                value=self.lookups_cores(replicas),
                unit="cores",
                how=f"{wanted.lookups:,.0f} a second ÷ {replicas} × {self.lookup_us:.0f} us",
            ),
            Item(
                name="CPU for sources",
                value=self.sources_cores(replicas),
                unit="cores",
                how=f"{self.subscribed(replicas):.0f} connected × {self.measured['source_cpu']:g} cores, idle or not",
            ),
            Item(
                name="CPU",
                value=self.cores(replicas),
                unit="cores",
                how=f"the sum, of one core; at most {CORE:g} is planned for",
            ),
        ]

    # -- memory and files ----------------------------------------------------------------------------------------------

    def memory(self, replicas: int) -> list[Item]:
        """Of one replica, while another is gone."""
        wanted, measured = self.wanted, self.measured
        owned = wanted.pairs * self.share(max(1, replicas - 1))
        mirror = wanted.unique * measured["mirror_bytes"] / MIB
        maps = owned * (measured["map_bytes"] + measured["rest_bytes"]) / MIB
        while_one_is_gone = " while one replica is gone" if replicas > 1 and wanted.store else ""
        source_kib = measured["source_kib"] + remembered.REPORTS_KIB
        base = measured["idle_mib"] + wanted.engines * source_kib / KIB
        answers = remembered.answers(wanted, max(1, replicas - 1))
        expected = remembered.expected(wanted)
        return [
            Item(
                name="memory of the index",
                value=mirror,
                unit="MiB",
                how=f"{wanted.unique:,.0f} different blocks × {measured['mirror_bytes']:g} bytes; each has all",
            ),
            Item(
                name="memory of the reverse maps",
                value=maps,
                unit="MiB",
                how=f"{owned:,.0f} blocks of the sources it owns{while_one_is_gone} × "
                f"{measured['map_bytes'] + measured['rest_bytes']:.0f} bytes",
            ),
            Item(
                name="memory beside them",
                value=base,
                unit="MiB",
                how=f"{measured['idle_mib']:g} MiB + {wanted.engines} sources × {source_kib:g} KiB, of which "
                f"{remembered.REPORTS_KIB} for reports",
            ),
            Item(name="memory of answers", value=answers.mib, unit="MiB", how=answers.how),
            Item(name="memory of what is expected", value=expected.mib, unit="MiB", how=expected.how),
            Item(
                name="memory",
                value=base + answers.mib + expected.mib + wanted.margin * (mirror + maps),
                unit="MiB",
                how=f"index and maps × {wanted.margin:g}, and the rest",
            ),
        ]

    def files(self, replicas: int) -> Item:
        """Open files."""
        sources, each = self.subscribed(max(1, replicas - 1)), self.measured["source_files"]
        return Item(
            name="open files",
            value=round(sources * each * self.wanted.margin) + FILES_BESIDE,
            unit="files",
            how=f"{sources:.0f} sources × {each:.1f} × {self.wanted.margin:g} + {FILES_BESIDE}",
        )

    # -- the store -----------------------------------------------------------------------------------------------------

    @property
    def load_s(self) -> float:
        """Until a replica that starts has read every map."""
        return self.wanted.pairs * self.measured["load_s"]

    def journal_bytes(self, partitions: int) -> float:
        """Of each partition: several times what is written while a replica loads."""
        changes = 2 * self.wanted.rate_of_all / partitions * (HASH_BYTES + LANES_BYTES)
        ticks = TICKS_A_SECOND * cost(round(TICK_BYTES * self.wanted.engines / partitions))
        return max(JOURNAL_LEAST, JOURNAL_TIMES * max(1.0, self.load_s) * (cost(round(changes)) + ticks))

    def store(self, replicas: int, partitions: int) -> list[Item]:
        """What the store takes."""
        wanted, measured = self.wanted, self.measured
        maps = wanted.pairs * measured["store_bytes"] / MIB
        journal = self.journal_bytes(partitions) * partitions / MIB
        beside = remembered.stored(wanted, replicas, partitions)
        return [
            Item(
                name="maps",
                value=maps,
                unit="MiB",
                how=f"{wanted.pairs:,} blocks × {measured['store_bytes']:g} bytes",
            ),
            Item(
                name="journals",
                value=journal,
                unit="MiB",
                how=f"{partitions} × {JOURNAL_TIMES} times what is written while a replica loads, 16 MiB at least",
            ),
            Item(name="hints and counts", value=beside.mib, unit="MiB", how=beside.how),
            Item(
                name="memory",
                value=wanted.margin * (maps + journal + beside.mib),
                unit="MiB",
                how=f"× {wanted.margin:g}: maxmemory",
            ),
            Item(
                name="CPU",
                value=2 * wanted.rate_of_all * measured["store_us"] / _MILLION,
                unit="cores",
                how=f"{2 * wanted.rate_of_all:,.0f} changes/s × {measured['store_us']:g} us; one server uses one core",
            ),
            Item(
                name="a replica that starts",
                value=self.load_s,
                unit="s",
                how=f"until it has read every map: {wanted.pairs:,} blocks × {measured['load_s'] * _MILLION:.2g} us",
            ),
            Item(
                name="replay must reach back",
                value=wanted.lease_s + self.load_s * self.share(2),
                unit="s",
                how="lease and takeover; the engine keeps buffer_steps batches (10,000 by default)",
            ),
        ]


def _settings(costs: _Costs, replicas: int, partitions: int) -> list[Setting]:
    wanted = costs.wanted
    found = []
    if wanted.engines > 0.9 * SOURCES_DEFAULT:
        why = f"{SOURCES_DEFAULT} by default"
        found.append(Setting(key="limits.sources", value=str(2 * wanted.engines), why=why))
    if wanted.engines > PER_SOURCE_METRICS_MAX:
        found.append(Setting(key="metrics.per_source", value="false", why="else some twenty series a source"))
    files = costs.files(replicas).value
    if files > FILES_USUAL:
        found.append(Setting(key="ulimit -n", value=f"{files:.0f}", why="sockets of the sources"))
    if not wanted.store:
        return found
    found.append(Setting(key="redis.partitions", value=str(partitions), why="fixed for the life of the deployment"))
    journal = costs.journal_bytes(partitions)
    if journal > JOURNAL_LEAST:
        why = "who loads must find the journal where the maps end"
        found.append(Setting(key="redis.journal_bytes", value=f"{-(-int(journal) // MIB) * MIB}", why=why))
    if costs.load_s > READY_DEFAULT_S / 2:
        why = "a replica that starts reads so long"
        found.append(Setting(key="server.ready_wait_s", value=f"{2 * costs.load_s:.0f}", why=why))
    memory = next(item for item in costs.store(replicas, partitions) if item.name == "memory")
    found.append(Setting(key="maxmemory", value=f"{memory.value:.0f}mb", why="of the store"))
    found.append(Setting(key="maxmemory-policy", value="noeviction", why="of the store; with another it is not used"))
    return found


def _assumptions(wanted: Wanted, deployments: int, replicas: int) -> list[str]:
    lookups = "no lookups were asked for (--lookups)"
    if wanted.lookups:
        lookups = (
            f"prompts of {wanted.prompt_tokens:,} tokens, asked for by JSON ids over kept connections; an answer lists "
            f"all engines of its model ({wanted.models} of equal fleets); each request is reported as routed, and what "
            "was reused of it"
        )
    full = (
        f"engines are full and stay so: each announces {wanted.rate:g} blocks a second, in batches of "
        f"{wanted.batch_blocks}, and takes back as many"
    )
    said = [
        full,
        f"{wanted.shared:.0%} of each engine's blocks are also at one other engine"
        if wanted.engines > 1
        else "one engine: nothing that it holds is at another, too",
        lookups,
        "cores and memory as those that were measured on; another machine scales all CPU figures alike",
    ]
    if deployments > 1:
        said.append(
            f"{deployments} deployments, each with a store or namespace of its own and a part of the engines, whole "
            "models where there are several: one alone cannot follow all events. Who has one model in several of them "
            "asks each, and takes the best"
        )
    if wanted.store:
        said.append(
            "one replica may be gone: memory, CPU and files are for those that are left"
            if replicas > 1
            else "one replica: while it is gone nobody answers, and what engines say is left to their replay"
        )
        said.append("what is only listened to is kept beside it, redis.standby_bytes (256 MiB) at most")
    else:
        said.append("no store: each replica subscribes to every engine and applies all by itself")
        if wanted.partitions is not None:
            said.append("without a store there are no partitions: --partitions counts for nothing")
    return said


def _partitions(replicas: int) -> int:
    """A power of two, several for each replica."""
    count = PARTITIONS_LEAST
    while count < min(PARTITIONS_A_REPLICA * replicas, PARTITIONS_MAX):
        count *= 2
    return count


def _at_most(figures: dict[int, float], wanted: int) -> float:
    """Of the largest measured size that is not above: the dearer side."""
    return figures[max((size for size in figures if size <= wanted), default=min(figures))]


def _at_least(figures: dict[int, float], wanted: int) -> float:
    """Of the smallest measured size that is not below; beyond all, in proportion to the largest."""
    above = [size for size in figures if size >= wanted]
    largest = max(figures)
    return figures[min(above)] if above else figures[largest] * wanted / largest
