"""What is wanted in, how much it takes out: by hand where it can be reckoned, by what must hold elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from api.cli import plan as command
from api.cli.parser import build_parser
from indexer.settings import Settings
from indexer.sizing import remembered
from indexer.sizing.formulas import CORE, CORE_ONE_GONE, MIB, Plan, Wanted, planned
from indexer.sizing.measured import MEASURED, Constant, Measured
from indexer.store.hints import ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.sizing.formulas import Item

ROUND = Measured(
    conditions={},
    constants={
        name: Constant(value=value, unit="", of="")
        for name, value in {
            "mirror_bytes": 100,
            "map_bytes": 150,
            "rest_bytes": 50,
            "idle_mib": 70,
            "source_kib": 128,
            "removals_factor": 1.5,
            "lookup_sources": 64,
            "lookup_us_a_source": 2,
            "store_bytes": 80,
            "load_s": 2e-6,
            "own_us": 8,
            "follow_us": 3,
            "store_us": 4,
            "uneven": 1.2,
            "source_cpu": 0.0002,
            "source_files": 8,
        }.items()
    },
    apply_us={1: 20.0, 16: 5.0, 512: 4.0},
    lookup_us={512: 100.0, 8_192: 300.0},
)
"""Constants to reckon with by hand."""
WANTED = Wanted(engines=100, blocks=MIB // 10, rate=100.0, shared=0.5, lookups=1_000.0, margin=2.0)
"""About ten mebi of blocks."""


def make(wanted: Wanted = WANTED, **changed: object) -> Plan:
    """With the round constants."""
    return planned(msgspec.structs.replace(wanted, **changed), ROUND)


def figures(items: Sequence[Item]) -> dict[str, float]:
    """By name."""
    return {item.name: item.value for item in items}


def test_memory_of_a_replica() -> None:
    """Of ten mebi blocks three quarters are different ones; two replicas: while one is gone, the other owns all."""
    told = figures(make(replicas=2).each_replica)

    assert 750 == pytest.approx(told["memory of the index"], rel=1e-3)
    assert 2_000 == pytest.approx(told["memory of the reverse maps"], rel=1e-3)
    assert 70 + 100 * (128 + 28) / 1024 == told["memory beside them"]
    rest = told["memory beside them"] + told["memory of answers"] + told["memory of what is expected"]
    assert rest + 2 * 2_750 == pytest.approx(told["memory"], rel=1e-3)


def test_memory_of_answers_and_of_what_is_expected() -> None:
    """By lookups and prompts, up to what the defaults of the settings allow; nothing without lookups, but removals."""
    few, many, none = (figures(make(lookups=n, replicas=2, prompt_tokens=1_600).each_replica) for n in (1.0, 1e5, 0.0))

    assert (600 * 700 + 10 * 6_900) / MIB == pytest.approx(few["memory of answers"])
    assert (10 * 100 * 150) / MIB + 4 == pytest.approx(few["memory of what is expected"])
    limits, feedback = Settings().limits, Settings().feedback
    assert (feedback.answers_bytes + feedback.prompt_bytes) / MIB == many["memory of answers"]
    most = limits.speculative_blocks * 150 + limits.removals_kept * 16
    assert most / MIB == pytest.approx(many["memory of what is expected"])
    assert (0, 4) == (none["memory of answers"], none["memory of what is expected"])
    assert (feedback.answers_s, feedback.prompt_s) == (remembered.ANSWERS_S, remembered.PROMPT_S)


def test_hints_and_counts_in_the_store() -> None:
    """A partition's hints fill no more than its entries can hold; a source's counts take a kibibyte."""
    few, many, none = (figures(make(lookups=n, replicas=2, partitions=16).store) for n in (1.0, 1e6, 0.0))

    assert (16 * 356 * (64 + 4_096) + 100 * 1_024) / MIB == pytest.approx(few["hints and counts"])
    assert (16 * 356 * ENTRY_BYTES + 100 * 1_024) / MIB == pytest.approx(many["hints and counts"])
    assert 100 * 1_024 / MIB == pytest.approx(none["hints and counts"])


def test_more_replicas_share_the_reverse_maps_and_nothing_else() -> None:
    """Each has the whole index; of three left over, the one that has most has 1.2 thirds."""
    two, four = (figures(make(replicas=count).each_replica) for count in (2, 4))

    assert two["memory of the index"] == four["memory of the index"]
    assert 0.4 * two["memory of the reverse maps"] == pytest.approx(four["memory of the reverse maps"])


def test_cpu_of_a_replica() -> None:
    """10,000 blocks a second: 60 % owned at 8 × 1.5 us, the rest followed at twice 3; half the lookups at 372 us."""
    told = figures(make(replicas=2).each_replica)

    assert 0.01 * (0.6 * 12 + 0.4 * 6) == pytest.approx(told["CPU for events"])
    assert 500 * 372e-6 == pytest.approx(told["CPU for lookups"])
    assert 0.02 == pytest.approx(told["CPU for sources"])
    assert told["CPU for events"] + told["CPU for lookups"] + told["CPU for sources"] == pytest.approx(told["CPU"])


def test_small_batches_cost_more() -> None:
    """By the largest measured size that is not above; below all, by the smallest."""
    large, usual, odd, small = (figures(make(batch_blocks=n).each_replica)["CPU for events"] for n in (600, 16, 17, 1))

    assert large < usual == odd < small


def test_long_prompts_cost_more() -> None:
    """By the next measured length, and beyond all in proportion."""
    short, usual, long = (
        figures(make(prompt_tokens=n, replicas=1).each_replica)["CPU for lookups"] for n in (9, 600, 16_384)
    )

    assert (0.172, 0.372, 0.672) == pytest.approx((short, usual, long))


def test_the_store() -> None:
    """Maps of all blocks; a journal of 16 MiB a partition until more is written while a replica loads."""
    quiet, busy = make(partitions=16), make(partitions=16, rate=20_000.0, replicas=2)

    assert 800 == pytest.approx(figures(quiet.store)["maps"], rel=1e-3)
    assert 256 == figures(quiet.store)["journals"]
    beside = figures(quiet.store)["hints and counts"]
    assert 2 * (800 + 256 + beside) == pytest.approx(figures(quiet.store)["memory"], rel=1e-3)
    assert 21 == pytest.approx(figures(quiet.store)["a replica that starts"], rel=0.01)
    assert figures(busy.store)["journals"] > 256
    assert "redis.journal_bytes" in {setting.key for setting in busy.settings}
    assert "redis.journal_bytes" not in {setting.key for setting in quiet.settings}


def test_as_many_replicas_as_it_takes() -> None:
    """Two at least, of which one may go; more where lookups want it; with each more, each has less to do."""
    few, many = make(lookups=0.0), make(lookups=8_000.0)

    assert (2, []) == (few.replicas, few.trouble)
    assert many.replicas > 2
    assert figures(many.each_replica)["CPU"] <= CORE
    assert figures(make(lookups=8_000.0, replicas=many.replicas - 1).each_replica)["CPU"] <= CORE_ONE_GONE
    assert make(lookups=8_000.0, replicas=2).trouble
    assert 64 == make(replicas=16).partitions


def test_a_fleet_that_one_deployment_cannot_follow_is_split() -> None:
    """Every replica follows everything: beyond that rate no number of them helps. Each part has all lookups."""
    (why,) = make(rate=2_000.0, replicas=16).trouble
    told = make(rate=2_000.0)

    assert "no number of replicas does it" in why
    assert told.deployments > 1
    assert [] == told.trouble
    assert -(-100 // told.deployments) == told.wanted.engines
    assert WANTED.lookups == told.wanted.lookups


def test_what_cannot_be_split_is_said() -> None:
    """An engine that alone is too much, and lookups that are."""
    assert (1, 1) == (make(engines=1, rate=1e6).deployments, len(make(engines=1, rate=1e6).trouble))
    assert (1, 1) == (make(lookups=1e6).deployments, len(make(lookups=1e6).trouble))


def test_without_a_store() -> None:
    """Each replica applies everything by itself, and there is nothing to say of a store."""
    told = make(store=False, replicas=3)

    assert ([], 0) == (told.store, told.partitions)
    assert 0.01 * 5 == pytest.approx(figures(told.each_replica)["CPU for events"])
    assert not any(setting.key.startswith(("redis", "maxmemory")) for setting in told.settings)


def test_what_there_is_one_of_only() -> None:
    """One replica of which none may go, one engine that shares with nobody, and partitions of no store."""
    alone, several = make(replicas=1, engines=1), make(replicas=2)
    bare = make(store=False, partitions=4)

    assert not any("one replica may be gone" in each or "also at one other" in each for each in alone.assumptions)
    assert any("one replica may be gone" in each for each in several.assumptions)
    assert WANTED.blocks == alone.wanted.unique
    assert not any("while one replica is gone" in each.how for each in alone.each_replica)
    assert any("--partitions counts for nothing" in each for each in bare.assumptions)


def test_settings_that_a_large_fleet_needs() -> None:
    """Limits, metrics and files; a small one needs none of them."""
    large = {setting.key: setting.value for setting in make(engines=5_000, blocks=10, rate=1.0, replicas=8).settings}
    small = {setting.key for setting in make(engines=5, blocks=10, rate=1.0, store=False).settings}

    assert ("10000", "false", "noeviction") == (
        large["limits.sources"],
        large["metrics.per_source"],
        large["maxmemory-policy"],
    )
    assert "ulimit -n" in large
    assert set() == small


@pytest.mark.parametrize(
    "line",
    [
        "--engines 200 --blocks 50000 --rate 1000",
        "--engines 200 --blocks 50000 --rate 100 --lookups 2000",
        "--engines 1 --blocks 1 --rate 0",
    ],
)
def test_the_command(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures with formulas, and for programs all constants beside them."""
    parser = build_parser("1")
    code = command.run(parser.parse_args(["plan", *line.split()]))
    shown = capsys.readouterr().out
    assert code == command.run(parser.parse_args(["plan", *line.split(), "--json"]))
    told = json.loads(capsys.readouterr().out)

    assert 0 == code
    for words in ("each replica\n", "the store\n", "settings\n", "assumed\n", "different blocks", "maxmemory-policy"):
        assert words in shown
    assert -(-int(line.split()[1]) // told["plan"]["deployments"]) == told["plan"]["wanted"]["engines"]
    assert MEASURED["mirror_bytes"] == told["measured"]["constants"]["mirror_bytes"]["value"]


def test_a_fleet_that_is_too_much(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and why."""
    words = ["plan", "--engines", "2000", "--blocks", "50000", "--rate", "1000", "--replicas", "3"]
    assert 1 == command.run(build_parser("1").parse_args(words))

    assert "cannot be done so: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("--margin", "0.5", "1..100 wanted, got 0.5"),
        ("--replicas", "65", "1..64 wanted, got 65"),
        ("--partitions", "0", "a whole number of 1 or more wanted, got '0'"),
        ("--shared", "1.5", "0..1 wanted, got 1.5"),
    ],
)
def test_what_is_typed_wrong(flag: str, value: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Told with what is wanted."""
    with pytest.raises(SystemExit):
        build_parser("1").parse_args(["plan", "--engines", "1", "--blocks", "1", "--rate", "1", flag, value])

    assert why in capsys.readouterr().err
