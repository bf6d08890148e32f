"""`python -m loadtest simulate`: the targets over the public traces, or one trace or log over one fleet."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.report import markdown, save, table
from loadtest.simulate.cells import UTILISATION
from loadtest.simulate.fleet import Fleet
from loadtest.simulate.logs import FORMAT, LogError, read_log
from loadtest.simulate.run import run, run_quickly
from loadtest.simulate.strategies import NAMES
from loadtest.simulate.sweep import KNOBS, Blend, compared, parsed_sweep, swept
from loadtest.simulate.traces import TRACES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.report import Row
    from loadtest.simulate.workload import Trace, Workload

PODS_MAX: Final = 4_096
HELP: Final = """\
What routing by prefix would win: requests of a trace over pods with LRU caches and queues. A model; no engines.

  python -m loadtest simulate                        the targets: all public traces, fleets and caches; minutes
  python -m loadtest simulate --quick                the same with the beginning of each trace; seconds
  python -m loadtest simulate --trace conversation   one trace over 8 pods of 2,000 blocks, every strategy
  python -m loadtest simulate --log access.jsonl --pods 12 --blocks 30000
                                                     your own log, as fast as it was
  python -m loadtest simulate --log access.jsonl --sweep w_load=0.1..1.0
                                                     which weight of load does best on it
"""
STRATEGIES: Final = """\
Strategies, for --strategy with hyphens (round-robin, blend-no-loads):
  round robin       in turns
  session           each session where its hash says
  load              the fewest requests under way
  prefix            the longest match, whatever the loads; of equals, always the same one for a prefix
  blend, no loads   what is recommended where no loads are known: as prefix, but a pod that got more than twice
                    its share of a prefix's requests in 30 s is passed over
  blend             what is recommended: w_prefix * matched share + w_load * headroom (1 and 0.3)
  ideal             one cache as large as all pods' together, and the pod that is free first

Columns: block hits, of all blocks asked for; imbalance, the tokens that the busiest pod had to compute over the mean
of all pods; TTFT, waiting for the prompts before on that pod and computing what is not cached of one's own. Decoding
is not modelled, but for how long a request counts as under way. All of the model, and what it leaves out:
indexer/decisions/0039-a-simulated-fleet.md.

"""


_OF_ONE: Final = (
    "--pods",
    "--blocks",
    "--block-size",
    "--strategy",
    "--sweep",
    "--set",
    "--prefill-tokens-s",
    "--ms-per-token",
    "--scrape-s",
    "--utilisation",
    "--requests",
)
"""What changes nothing about the targets: their fleets are given."""


def main(words: Sequence[str]) -> int:
    """0, or 1 where a target is missed, 2 where a log cannot be read, 130 after Ctrl-C."""
    options = _options(words)
    try:
        return _one(options) if options.trace or options.log else _targets(options)
    except LogError as error:
        print(f"simulate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def _targets(options: argparse.Namespace) -> int:
    result = run_quickly() if options.quick else run()
    print()
    print(markdown(result))
    for target in result.targets:
        print(target.line())
    met = sum(target.met for target in result.targets)
    print(f"{met} of {len(result.targets)} targets met")
    if not (options.quick or options.no_save):
        save(result)
    return int(met < len(result.targets))


def _one(options: argparse.Namespace) -> int:
    workload = _workload(options)
    fleet = Fleet(options.pods, options.blocks, options.prefill_tokens_s, options.ms_per_token / 1e3, options.scrape_s)
    blend = Blend()
    for sweep in options.set or ():
        blend = blend.with_(sweep.knob, sweep.values[0])
    names = options.strategy or (("round robin", "blend") if options.sweep else NAMES)
    rows: list[Row] = []
    plain: list[tuple[float, str]] = []
    tried: list[tuple[float, str]] = []
    try:
        for name, figures in compared(workload, fleet, names, blend):
            rows.append(figures.row(name))
            plain.append((figures.ttft_mean_s, name))
            _progress(name)
        for sweep in options.sweep or ():
            for name, figures in swept(workload, fleet, sweep, blend):
                rows.append(figures.row(name))
                tried.append((figures.ttft_mean_s, name))
                _progress(name)
    finally:
        print(_title(workload, fleet), table(rows), sep="\n\n", flush=True)
    if tried:
        print(f"\n{best_of(tried, plain)}")
    return 0


def best_of(tried: Sequence[tuple[float, str]], others: Sequence[tuple[float, str]]) -> str:
    """Which of these has the least mean time to the first token, and whose of the others is less."""
    least_s, name = min(tried)
    less = [other for ttft_s, other in others if ttft_s < least_s]
    told = f"Least mean time to the first token of these weights: {name}."
    return told + (f" Less than that: {', '.join(less)}." if less else "")


def _progress(name: str) -> None:
    """For whoever waits; what is kept goes to the other stream."""
    print(f"  {name}", file=sys.stderr, flush=True)


def _workload(options: argparse.Namespace) -> Workload:
    trace: Trace = read_log(options.log, options.block_size) if options.log else TRACES[options.trace](options.requests)
    _progress(f"{len(trace):,} requests read")
    utilisation = options.utilisation
    if utilisation is None and options.log:
        return trace.stretched()
    return trace.at_rate((utilisation or UTILISATION) * options.pods * options.prefill_tokens_s)


def _title(workload: Workload, fleet: Fleet) -> str:
    requests = workload.requests
    span = requests[-1].at_s - requests[0].at_s
    loads = f"read each {fleet.scrape_s:g} s" if fleet.scrape_s else "told at once"
    return (
        f"{workload.name}: {len(requests):,} requests in {span:,.0f} s (times × {workload.stretch:.3g}), "
        f"{fleet.pods} pods, {fleet.cache} of {workload.block_size} tokens, {fleet.prefill_tokens_s:,.0f} tokens/s, "
        f"loads {loads}"
    )


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest simulate",
        description=HELP,
        epilog=STRATEGIES + FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="targets: the beginning of each trace; nothing is saved")
    parser.add_argument("--no-save", action="store_true", help="targets: leave loadtest/results as it is")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--trace", choices=list(TRACES), help="a public one, or the questions of recorded engines")
    which.add_argument("--log", type=Path, metavar="FILE", help="your own, see below; .jsonl or .csv, also .gz")
    fleet = parser.add_argument_group("with --trace or --log")
    fleet.add_argument("--pods", type=_pods, default=8, metavar="N", help="how many (8)")
    fleet.add_argument(
        "--blocks", type=_blocks, default=2_000, metavar="N", help="in each one's cache (2000), or unlimited"
    )
    fleet.add_argument("--block-size", type=_count, default=16, metavar="TOKENS", help="of a log's blocks (16)")
    fleet.add_argument(
        "--strategy", action="append", type=_name, metavar="NAME", help="only this one, see below; may be given again"
    )
    fleet.add_argument("--sweep", action="append", type=_sweep, metavar="NAME=FROM..TO", help=f"of {', '.join(KNOBS)}")
    fleet.add_argument("--set", action="append", type=_sweep, metavar="NAME=VALUE", help="of the same, for all of it")
    fleet.add_argument(
        "--prefill-tokens-s", type=_positive, default=8_000.0, metavar="N", help="that a pod computes a second (8000)"
    )
    fleet.add_argument("--ms-per-token", type=_positive, default=20.0, metavar="MS", help="that is said (20)")
    fleet.add_argument(
        "--scrape-s", type=_zero_or_more, default=0.0, metavar="S", help="loads from metrics this far apart (0: told)"
    )
    fleet.add_argument(
        "--utilisation",
        type=_positive,
        metavar="SHARE",
        help="stretch times until this share of the fleet were busy without any hit (a log: as it was; a trace: 0.65)",
    )
    fleet.add_argument("--requests", type=_count, metavar="N", help="of a trace, from its beginning (all)")
    options = parser.parse_args(words)
    alone = [option for option in _OF_ONE if any(word.partition("=")[0] == option for word in words)]
    if alone and not (options.trace or options.log):
        parser.error(f"{', '.join(alone)}: only with --trace or --log")
    return options


def _name(text: str) -> str:
    """Also with hyphens for what a shell would part."""
    named = {re.sub(r"\W+", "-", name): name for name in NAMES}
    told = re.sub(r"\W+", "-", text)
    if told not in named:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(named)}")
    return named[told]


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _pods(text: str) -> int:
    if _count(text) > PODS_MAX:
        raise argparse.ArgumentTypeError(f"at most {PODS_MAX:,}")
    return _count(text)


def _blocks(text: str) -> int | None:
    return None if text == "unlimited" else _count(text.replace(",", "").replace("_", ""))


def _zero_or_more(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return number


def _positive(text: str) -> float:
    if not _zero_or_more(text):
        raise argparse.ArgumentTypeError("must be more than 0")
    return float(text)


def _sweep(text: str) -> object:
    try:
        return parsed_sweep(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
