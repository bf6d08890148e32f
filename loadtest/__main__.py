"""Runs scenarios: `python -m loadtest NAME [--quick] [--no-save]`.

    lookups ingest stall memory soak    measured, judged against their targets, written to loadtest/results
    store visible rebuild soak-store    the same in Redis mode, on Redis and Valkey from wheels
    replicas takeover idle-sources      several replicas beside one store
    sidecar                             a replica beside a gateway: memory, time to be ready, what it passes over
    doors                               every way to ask, over REST and gRPC, against null routes
    gateways                            what asking before each request adds, in a real Envoy
    dynamo                              lookups beside Dynamo's own indexer, from its wheel
    trust                               whether answers can be trusted while parts fail; fails where they cannot
    simulate                            what routing by prefix wins on public traces, or your own log, in a model; fails
                                        where a target is missed; has more options: `simulate --help`
    bench                               what each stage costs, for finding out where time goes
    all                                 the five of the first line, in less than 25 minutes
    load                                lookups and ingest alone
    redis                               the seven of Redis mode
    report                              the tables of all results; with --readme into RESULTS.md, some into the README,
                                        and into the constants of kvindexer plan

`--quick` takes a fraction of the time, for trying a change out; its figures are not saved.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from loadtest import (
    bench,
    constants,
    doors,
    dynamo,
    gateways,
    idle_sources,
    ingest,
    lookups,
    memory,
    readme,
    rebuild,
    replicas,
    sidecar,
    soak,
    soak_store,
    stall,
    store,
    takeover,
    visible,
)
from loadtest.generator import GeneratorFailed
from loadtest.machine import ROOT
from loadtest.processes import ChildFailed
from loadtest.report import load_all, markdown, save
from loadtest.shapes import Shape
from loadtest.simulate import command as simulate
from loadtest.trust import run as trust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.report import Result

SCENARIOS: Final[Mapping[str, Callable[..., Result]]] = {
    "memory": memory.run,
    "soak": soak.run,
    "stall": stall.run,
    "ingest": ingest.run,
    "lookups": lookups.run,
    "store": store.run,
    "visible": visible.run,
    "rebuild": rebuild.run,
    "soak-store": soak_store.run,
    "replicas": replicas.run,
    "takeover": takeover.run,
    "idle-sources": idle_sources.run,
    "sidecar": sidecar.run,
    "doors": doors.run,
    "gateways": gateways.run,
    "dynamo": dynamo.run,
    "trust": trust.run,
    "bench": bench.run,
}
GROUPS: Final = {
    "all": ("memory", "soak", "stall", "ingest", "lookups"),
    "load": ("lookups", "ingest"),
    "redis": ("store", "visible", "rebuild", "soak-store", "replicas", "takeover", "idle-sources"),
}
PROMISES: Final = frozenset({"trust"})
"""Here a target that is missed is an answer that was wrong."""
QUICK: Final[Mapping[str, Mapping[str, Any]]] = {
    "memory": {"pairs": 200_000},
    "soak": {"blocks": 400_000, "live_blocks": 5_000, "clears": 5_000, "anew": 1_000},
    "stall": {"blocks": 400_000, "rest_s": 2.0, "live_s": 2.0},
    "ingest": {"blocks": 4_096, "rounds": 2, "pings": 100, "shapes": (Shape(8), Shape(8, removals=True), Shape(64))},
    "lookups": {"seconds": 1.0, "fleets": ((8, 100_000),)},
    "store": {"blocks": 8_000, "rounds": 3, "pairs": 100_000},
    "visible": {"runs": 1, "pings": 100},
    "rebuild": {"pairs": 100_000, "rounds": 1},
    "soak-store": {"blocks": 200_000, "live_blocks": 2_048},
    "replicas": {"blocks": 512, "rounds": 1, "pings": 50},
    "takeover": {"leases": ((3.0, 1),)},
    "idle-sources": {"sources": 100, "rest_s": 1.0},
    "sidecar": {"pairs": 50_000, "rounds": 1, "passed": 20_000},
    "doors": {"connections": (16,)},
    "gateways": {"seconds": 1.0, "rounds": 1},
    "dynamo": {"rounds": 1},
    "trust": {"names": ("clear",), "rates": (0.0, 0.05), "last_lost": 1, "brief": True},
    "bench": {"lengths": (512, 8_192)},
}


def main(words: Sequence[str] | None = None) -> int:
    """Run what is asked for.

    0 also where targets of speed are missed, which the output says; 1 where an answer was wrong or a process died, or
    a target of `simulate` is missed.
    """
    words = sys.argv[1:] if words is None else words
    if words and words[0] == "simulate":
        return simulate.main(words[1:])
    options = _options(words)
    if options.name == "report":
        return _report(options)
    usable = os.sched_getaffinity(0)
    results, failed = [], []
    started = time.monotonic()
    for name in GROUPS.get(options.name, (options.name,)):
        print(f"{name}:", flush=True)
        os.sched_setaffinity(0, usable)
        result = _run(name, options)
        if result is not None:
            results.append(result)
        if result is None or not _keeps_promises(result):
            failed.append(name)
    for result in results:
        print()
        print(markdown(result))
    _sum_up(results, time.monotonic() - started)
    if failed:
        print(f"FAILED, see above: {', '.join(failed)}")
    return bool(failed)


def _report(options: argparse.Namespace) -> int:
    if options.readme:
        readme.rewrite(ROOT / "README.md", ROOT / "loadtest" / "RESULTS.md")
        constants.write(load_all())
    else:
        print("\n".join(map(markdown, load_all())))
    return 0


def _run(name: str, options: argparse.Namespace) -> Result | None:
    """None where an answer was wrong or a process died, which was told. What is worth keeping is saved."""
    try:
        result = SCENARIOS[name](**(QUICK[name] if options.quick else {}))
    except (AssertionError, ChildFailed, GeneratorFailed):
        traceback.print_exc()
        return None
    if not (options.quick or options.no_save) and result.tables and _keeps_promises(result):
        save(result)
    return result


def _keeps_promises(result: Result) -> bool:
    return result.scenario not in PROMISES or all(target.met for target in result.targets)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description="Load tests over loopback.")
    parser.add_argument("name", choices=[*SCENARIOS, *GROUPS, "simulate", "report"])
    parser.add_argument("--quick", action="store_true", help="a fraction of the time; results are not saved")
    parser.add_argument(
        "--readme", action="store_true", help="with report: rewrite RESULTS.md, the README's numbers and plan's"
    )
    parser.add_argument("--no-save", action="store_true", help="leave loadtest/results as it is")
    return parser.parse_args(words)


def _sum_up(results: Sequence[Result], seconds: float) -> None:
    targets = [target for result in results for target in result.targets]
    for target in targets:
        print(target.line())
    if targets:
        met = sum(target.met for target in targets)
        print(f"{met} of {len(targets)} targets met, in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
