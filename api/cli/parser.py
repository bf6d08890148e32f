"""The grammar of the command line and the help that teaches it. No behaviour: `indexer.__main__` acts on the result."""

from __future__ import annotations

import argparse
import difflib
import os
from pathlib import Path
from typing import Any, Final, get_args

from api.access.caller import Scope
from api.cli import flag_values
from api.cli.client import TIMEOUT_S, Named
from api.cli.help_texts import (
    CALLERS,
    COMPARE,
    CONFIG,
    DEMO,
    DOCTOR,
    DRAIN,
    EXPLAIN,
    LOOKUP,
    OVERVIEW,
    PARTITIONS,
    PLAN,
    REDIS,
    REDIS_RESET,
    REPLAY,
    REPORT,
    REPORT_CONSISTENCY,
    REPORT_STALENESS,
    SERVE,
    SOURCES,
)
from indexer.model import SourceState
from schemas.history import HISTORY_LIMIT
from schemas.reports import WindowName

DEFAULT_URL: Final = "http://127.0.0.1:8080"

FACES: Final = ("kvindexer", "dynamo")


def build_parser(version: str) -> argparse.ArgumentParser:
    """All subcommands. Unknown flags are errors, and no flag may be cut short."""
    parser = _Parser(prog="kvindexer", description=OVERVIEW)
    parser.add_argument("--version", action="version", version=f"kvindexer {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="run the service", epilog=SERVE))
    _add_demo(
        commands.add_parser("demo", help="a fleet, a service and lookups on this machine, shown live", epilog=DEMO)
    )
    _add_replay(commands.add_parser("replay", help="publish a recorded event stream as the engines did", epilog=REPLAY))
    _add_lookup(commands.add_parser("lookup", help="ask a running service about one prompt", epilog=LOOKUP))
    _add_explain(
        commands.add_parser("explain", help="why engines hold no more of one prompt, and what to do", epilog=EXPLAIN)
    )
    _add_sources(commands.add_parser("sources", help="what a running service listens to", epilog=SOURCES))
    _add_partitions(
        commands.add_parser("partitions", help="which replicas there are, and who owns what", epilog=PARTITIONS)
    )
    _add_report(commands.add_parser("report", help="how the sources are doing, and how they were", epilog=REPORT))
    _add_doctor(
        commands.add_parser("doctor", help="look a deployment over: what is wrong, and what to do", epilog=DOCTOR)
    )
    _add_plan(commands.add_parser("plan", help="how much memory, CPU, store and replicas a fleet takes", epilog=PLAN))
    _add_drain(commands.add_parser("drain", help="have a replica give up all that it owns", epilog=DRAIN))
    _add_compare(commands.add_parser("compare", help="the same prompts to two services", epilog=COMPARE))
    _add_redis(commands.add_parser("redis", help="the store itself: clear a namespace", epilog=REDIS))
    _add_token(commands.add_parser("token", help="make a bearer token, and its entry for the service", epilog=CALLERS))
    _add_config(commands.add_parser("config", help="print the effective settings, secrets masked", epilog=CONFIG))
    return parser


class _Parser(argparse.ArgumentParser):
    """Keeps the line breaks of our help, and wants flags in full: an abbreviation breaks when a flag is added."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  handed on as argparse gives them
        super().__init__(
            *args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **kwargs}
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401  as above
        """As the base, but a flag nobody knows is told with the usage of the subcommand it was given to."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return known, unknown

    def _meant(self, unknown: list[str]) -> str:
        flags = [name for name in self._option_string_actions if name.startswith("--")]
        found = [difflib.get_close_matches(text.partition("=")[0], flags, n=1) for text in unknown if text[:2] == "--"]
        meant = [close[0] for close in found if close]
        return f" (did you mean {', '.join(dict.fromkeys(meant))}?)" if meant else ""


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """The flags that `serve` and `config` share: they change settings."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=flag_values.port_or_off,
        metavar="N|off",
        help="port to listen on, 0 for a free one, off for none beside --uds (default 8080)",
    )
    parser.add_argument(
        "--grpc-port",
        type=flag_values.port_or_off,
        metavar="N|off",
        help="port for gRPC on the same host, 0 for a free one, off for no gRPC (default 50051)",
    )
    parser.add_argument(
        "--epp-port",
        type=flag_values.whole,
        metavar="N",
        help="port of the endpoint picker for Envoy, role epp, on the same host, 0 for a free one (default 9002)",
    )
    parser.add_argument("--uds", metavar="PATH", help="Unix socket to listen on, beside the port or without one")
    parser.add_argument(
        "--redis-url",
        metavar="URL",
        help="durable store, Redis or Valkey: redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://; "
        "without, all is kept in memory only",
    )
    parser.add_argument(
        "--roles",
        metavar="collect,lookup,epp",
        help="what this replica does (default collect,lookup): lookup alone subscribes to no engine and follows the "
        "store; epp picks endpoints for Envoy",
    )
    parser.add_argument(
        "--follow",
        action="append",
        default=None,
        metavar="MODEL",
        help="with --roles lookup: follow sources of this model alone; once for each model (default all)",
    )
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=ENDPOINT",
        help="an engine to subscribe to: NAME=tcp://HOST:PORT, then as wanted ,replay=tcp://HOST:PORT ,model=M ,rank=N "
        "or ,ranks=A-B ,address=IP:PORT ,alias=X,alias=Y ,role=prefill|decode|both ,tenant=T ,blocks=N (its "
        "capacity); once for each engine",
    )
    parser.add_argument(
        "--source-bind",
        action="append",
        default=None,
        metavar="tcp://*:PORT",
        help="bind here for engines that connect; once for each address",
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Subscribe to engines and answer who holds how much of a prompt, over REST and gRPC, until Ctrl-C or SIGTERM."
    )
    _add_settings(parser)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print what file, environment and flags come to, with secrets masked."
    _add_settings(parser)
    parser.add_argument("--check", action="store_true", help="only say whether they are good (exit code 2 if not)")
    parser.add_argument("--json", action="store_true", help="JSON instead of YAML")


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Three engines replay recorded vLLM traffic through real sockets into a service; lookups go on."
    )
    parser.add_argument(
        "--port",
        type=flag_values.whole,
        default=8080,
        metavar="N",
        help="port of the service, 0 for a free one (default 8080)",
    )
    parser.add_argument(
        "--grpc-port",
        type=flag_values.port_or_off,
        default=0,
        metavar="N|off",
        help="its port for gRPC, 0 for a free one, off for no gRPC (default 0; the address is printed)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--redis",
        action="store_true",
        help="with a store (a Valkey or Redis of its own, started for the demo); the service is killed and started "
        "again on the way",
    )
    how.add_argument(
        "--cluster",
        action="store_true",
        help="three replicas beside such a store, asked in turn, on the given ports and the two above each; on the way "
        "one is killed and started again, one is paused beyond its lease and goes on",
    )
    parser.add_argument("--seconds", type=flag_values.positive, metavar="N", help="end by itself after so long")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.description = "Publish a recorded event stream, each engine of it on a port of its own."
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a kvtrace/1 file (NAME.kvt.gz), or demo")
    parser.add_argument(
        "--endpoint-base",
        metavar="tcp://HOST:PORT",
        default="tcp://127.0.0.1:5557",
        help="where the first engine publishes; the others on the ports after it; port 0: free ones",
    )
    parser.add_argument(
        "--replay-base", metavar="tcp://HOST:PORT", default="tcp://127.0.0.1:6557", help="the same for replay"
    )
    parser.add_argument("--no-replay", action="store_true", help="no replay endpoint, as is vLLM's default")
    parser.add_argument(
        "--speed",
        type=flag_values.speed,
        default=1.0,
        metavar="N|max",
        help="times its own pace (default 1): 0.1 is ten times slower",
    )
    parser.add_argument(
        "--loss",
        type=flag_values.probability,
        default=0.0,
        metavar="P",
        help="probability of a batch being lost on its way; it can still be replayed",
    )
    parser.add_argument(
        "--seed",
        type=flag_values.whole,
        default=1,
        metavar="N",
        help="of the losses: the same ones every time (default 1)",
    )
    parser.add_argument("--loop", action="store_true", help="again and again, each time as new engine processes")
    parser.add_argument(
        "--wait-subscribers",
        action="store_true",
        help="begin, and go on after an engine's restart, when each engine has a subscriber",
    )
    parser.add_argument(
        "--hold",
        type=flag_values.not_negative,
        metavar="S",
        help="end so long after the last message (default: stay until Ctrl-C, as an engine does)",
    )


def _add_lookup(parser: argparse.ArgumentParser) -> None:
    parser.description = "Ask a running service which engines hold how much of one prompt, best first."
    _add_client(parser)
    _add_prompt(parser)
    parser.add_argument("--pods", type=flag_values.names, metavar="A,B", help="only these pods")


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.description = "Ask a running service why engines hold no more of one prompt, and what to do about it."
    _add_client(parser)
    _add_prompt(parser)
    parser.add_argument("--pod", help="only this pod, by any of its names")
    parser.add_argument("--rank", type=flag_values.whole, metavar="N", help="only this data-parallel rank")


def _add_prompt(parser: argparse.ArgumentParser) -> None:
    """What tells a prompt, in whichever form."""
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument(
        "--tokens",
        metavar="FILE|-",
        help="token ids: a JSON list, or whole numbers with blanks, commas or line ends between them",
    )
    prompt.add_argument("--prompt", metavar="TEXT|@FILE", help="the prompt as text; @- reads standard input")
    prompt.add_argument(
        "--messages", metavar="@FILE", help="a chat request in JSON, or its messages alone; @- reads standard input"
    )
    parser.add_argument("--binary", action="store_true", help="the file is raw little-endian u32")
    parser.add_argument("--model", help="model or adapter")
    parser.add_argument("--lora", dest="lora_name", metavar="NAME", help="adapter")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.description = "What a running service listens to, how each source is doing, and what needs attention."
    _add_client(parser)
    parser.set_defaults(state=None, model=None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="all of them (the default)", description="List the sources.")
    listing.add_argument("--state", choices=get_args(SourceState), help="only those in this state")
    listing.add_argument("--model", help="only those of this model")
    adding = actions.add_parser("add", help="register one, or one a rank")
    adding.description = "Have the service subscribe to an engine; with ranks=A-B to one source a rank."
    adding.add_argument("source", metavar="NAME=ENDPOINT", help="as --source of serve")
    for name, text, description in (
        (
            "remove",
            "forget it",
            "Subscribe to it no more, and forget it. Not for flags and files; discovered ones come back (cordon them).",
        ),
        ("clear", "forget what it holds", "Forget what it holds; what it announces from now on counts again."),
        ("cordon", "list it with score 0", "List it with score 0 until uncordon: routers send nothing new there."),
        ("uncordon", "score it again", "Score it again after cordon."),
        (
            "history",
            "what happened to it: gaps, restarts, clears, changes of owner",
            "What happened to it, the newest first: gaps, restarts, clears, changes of owner, with cause and numbers.",
        ),
    ):
        action = actions.add_parser(name, help=text, description=description)
        action.add_argument("pod", metavar="POD", help="by any of its names")
        action.add_argument("--rank", type=flag_values.whole, metavar="N", help="only this data-parallel rank")
    history = actions.choices["history"]
    history.add_argument(
        "--limit",
        type=flag_values.items,
        default=HISTORY_LIMIT,
        metavar="N",
        help="at most so many, the newest (default 100)",
    )
    for action in actions.choices.values():
        _add_client(action, after_another=True)


def _add_partitions(parser: argparse.ArgumentParser) -> None:
    parser.description = "Which replicas there are, and what the one that is asked does with each partition."
    _add_client(parser)
    parser.add_argument("--watch", action="store_true", help="again each second, until Ctrl-C")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = "Reports of a running service."
    reports = parser.add_subparsers(dest="report", required=True, metavar="REPORT")
    staleness = reports.add_parser(
        "staleness", help="state, ages, gaps and warnings of each source", epilog=REPORT_STALENESS
    )
    staleness.description = "How each source is doing, how old what is known of it was, and what went wrong."
    _add_report_flags(staleness, "a line a source with all that is known, for a sheet")
    staleness.add_argument("--state", choices=get_args(SourceState), help="only sources in this state")
    consistency = reports.add_parser(
        "consistency", help="what was answered beside what engines really reused", epilog=REPORT_CONSISTENCY
    )
    consistency.description = "How right answers were, where callers reported what their engines really reused."
    _add_report_flags(consistency, "a line a source and window, for a sheet")
    consistency.add_argument("--tenant", help="only sources of this tenant")
    consistency.add_argument("--window", choices=get_args(WindowName), help="only this window; the table shows 1h")


def _add_report_flags(parser: argparse.ArgumentParser, csv: str) -> None:
    """Flags of every report."""
    _add_client(parser)
    parser.add_argument("--csv", action="store_true", help=csv)
    parser.add_argument("--pod", help="only this pod's")
    parser.add_argument("--model", help="only sources of this model")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Look a deployment over: ask a running service, connect to its engines and its store from here, and say of "
        "each check whether it is ok, a warning, a problem, or cannot be known, what that means and what to do."
    )
    _add_client(parser)
    parser.set_defaults(url=_from_environment("KVINDEXER_URL"), default_url=DEFAULT_URL)
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML, as for serve: what they name")
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=ENDPOINT",
        help="an engine, as for serve; may be repeated",
    )
    parser.add_argument("--redis-url", metavar="URL", help="the store, as for serve")
    parser.add_argument("--pods", type=flag_values.names, metavar="A,B", help="only the engines of these pods")
    parser.add_argument(
        "--listen-s",
        type=flag_values.listening,
        default=3.0,
        metavar="SECONDS",
        help="listen so long for events, to all engines at once (default 3, at most 600)",
    )
    parser.add_argument("--no-probe", action="store_true", help="connect to no engine and to no store")
    parser.add_argument(
        "--at-names",
        action="store_true",
        help="ask an engine without address over HTTP at its name, where that is IP:PORT",
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "How much a deployment takes, from what was measured: memory, CPU and files of each replica, memory of the "
        "store, how many replicas and partitions, and what to set. Asks nobody."
    )
    for flag, kind, metavar, text in (
        ("--engines", flag_values.items, "N", "engines, each data-parallel rank as one"),
        (
            "--blocks",
            flag_values.items,
            "N",
            "blocks that each holds when it is full (vLLM logs num_gpu_blocks), with other tiers",
        ),
        ("--rate", flag_values.not_negative, "N", "blocks that each announces a second, and takes back as many"),
    ):
        parser.add_argument(flag, type=kind, metavar=metavar, required=True, help=text)
    for flag, number, default, text in (
        ("--shared", flag_values.probability, 0.3, "part of an engine's blocks that one other holds, too"),
        ("--lookups", flag_values.not_negative, 0.0, "lookups a second, of all replicas together"),
        ("--prompt-tokens", flag_values.items, 8_192, "tokens of a prompt"),
        ("--batch-blocks", flag_values.items, 16, "blocks in a batch of events"),
        ("--models", flag_values.items, 1, "models, each served by an equal part of the engines"),
        ("--lease-s", flag_values.positive, 10.0, "redis.lease_s"),
        ("--margin", flag_values.margin, 1.5, "times what grows"),
    ):
        parser.add_argument(flag, type=number, default=default, metavar="N", help=f"{text} (default {default:g})")
    parser.add_argument(
        "--replicas", type=flag_values.replicas, metavar="N", help="so many (default: as many as it takes)"
    )
    parser.add_argument(
        "--partitions", type=flag_values.partitions, metavar="N", help="redis.partitions (default: by replicas)"
    )
    parser.add_argument("--no-store", dest="store", action="store_false", help="memory mode: each replica by itself")
    parser.add_argument("--json", action="store_true", help="the plan and all constants, for programs")


def _add_drain(parser: argparse.ArgumentParser) -> None:
    parser.description = "Have a replica hand over all partitions that it owns, and wait until it did."
    _add_client(parser, waits=True)
    parser.add_argument("replica", metavar="REPLICA", help="its name, as `kvindexer partitions` shows it")
    parser.add_argument("--undo", action="store_true", help="let it own partitions again")
    parser.add_argument("--no-wait", action="store_true", help="return at once, while it hands over")
    parser.add_argument(
        "--timeout",
        type=flag_values.positive,
        metavar="SECONDS",
        help=f"wait so long at most until it did, then exit code 1; for each answer it waits {TIMEOUT_S:g} at most",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Ask two services about the same prompts, and show where their answers differ, by reason."
    for side in ("a", "b"):
        parser.add_argument(f"url_{side}", metavar=f"URL_{side.upper()}", help="http://, https:// or unix:/PATH")
    parser.add_argument(
        "--prompts",
        required=True,
        metavar="FILE|-|demo",
        help="a JSON list of token ids a line, one list of such lists, or the prompts of a recording (NAME.kvt.gz)",
    )
    parser.add_argument("--model", help="model or adapter")
    parser.add_argument("--face", choices=FACES, default=FACES[0], help="what URL_B speaks (default kvindexer)")
    parser.add_argument("--face-a", choices=FACES, default=FACES[0], help="what URL_A speaks (default kvindexer)")
    parser.add_argument(
        "--pod",
        type=flag_values.renamed,
        action="append",
        default=[],
        metavar="B=A",
        help="what URL_B calls B is A at URL_A; may be repeated",
    )
    parser.add_argument(
        "--token",
        default=_from_environment("KVINDEXER_TOKEN"),
        help="bearer token for those that speak kvindexer (KVINDEXER_TOKEN)",
    )
    parser.add_argument("--token-b", help="bearer token for URL_B, where it is another one, or speaks otherwise")
    _add_connection(parser, " (for both services)")
    parser.add_argument("--json", action="store_true", help="the outcome for programs, with the differences")


def _add_redis(parser: argparse.ArgumentParser) -> None:
    parser.description = "What is done to the store itself, past any service."
    parser.set_defaults(print_help=parser.print_help)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    reset = actions.add_parser("reset", help="take away all that a namespace has in the store", epilog=REDIS_RESET)
    reset.description = "Take away all that one namespace has in the store: every key, whatever its layout's version."
    reset.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML, as for serve")
    reset.add_argument("--redis-url", metavar="URL", help="the store, as for serve")
    reset.add_argument("--namespace", metavar="NAME", help="redis.namespace (default kvi)")
    reset.add_argument("--yes", action="store_true", help="do not ask")
    reset.add_argument("--force", action="store_true", help="also while replicas run")
    reset.add_argument("--json", action="store_true", help="what was done, for programs")


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make a bearer token and the entry for auth.tokens_file by which a service knows it."
    parser.add_argument("--name", required=True, metavar="NAME", help="who gets it; appears in the service's log")
    parser.add_argument(
        "--scope",
        action="append",
        choices=sorted(get_args(Scope)),
        help="what it may do, again for more (default: lookup)",
    )
    parser.add_argument("--tenant", metavar="T", help="bind it to one tenant's engines (default: of all)")
    parser.add_argument("--json", action="store_true", help="both on stdout, for programs")


def _from_environment(variable: str) -> Named | None:
    text = os.environ.get(variable)
    return Named(text, variable) if text else None


def _add_client(parser: argparse.ArgumentParser, *, after_another: bool = False, waits: bool = False) -> None:
    """Flags of every client command. `after_another`: given here they win, left out those before the action stay.

    `waits`: what `--timeout` of this one bounds is more than an answer.
    """
    url = _from_environment("KVINDEXER_URL") or DEFAULT_URL
    token = _from_environment("KVINDEXER_TOKEN")
    kept = argparse.SUPPRESS
    parser.add_argument(
        "--url",
        default=kept if after_another else url,
        help=f"the service: http://, https:// or unix:/PATH (KVINDEXER_URL, else {DEFAULT_URL})",
    )
    parser.add_argument(
        "--token",
        default=kept if after_another else token,
        help="bearer token (KVINDEXER_TOKEN), for a service that asks who calls (auth.tokens_file)",
    )
    _add_connection(parser, after_another=after_another, waits=waits)
    parser.add_argument(
        "--json",
        action="store_true",
        default=kept if after_another else False,
        help="the answer as it came, for programs",
    )


def _add_connection(
    parser: argparse.ArgumentParser, holds_for: str = "", *, after_another: bool = False, waits: bool = False
) -> None:
    """How a service is spoken to. `holds_for`: which, where there are several."""
    kept = argparse.SUPPRESS
    for flag, what in (
        ("--ca", "certificates to trust instead of the system's"),
        ("--cert", "own certificate, for a service that asks for one"),
        ("--key", "its key"),
    ):
        told = f"https: {what}{holds_for}"
        parser.add_argument(flag, metavar="FILE", default=kept if after_another else None, help=told)
    if waits:
        parser.set_defaults(answer_s=TIMEOUT_S)
        return
    parser.add_argument(
        "--timeout",
        dest="answer_s",
        type=flag_values.positive,
        metavar="SECONDS",
        default=kept if after_another else TIMEOUT_S,
        help=f"wait so long at most for an answer, then exit code 1 (default {TIMEOUT_S:g})",
    )
