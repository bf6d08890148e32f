"""`kvindexer doctor`: a deployment looked over, from a running service's answers and from here."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import urlsplit

import msgspec

from api.access.gates import access_remarks, gates_of
from api.cli import output
from api.cli.client import CommandFailed, client_of
from api.cli.doctor_screen import print_findings
from api.cli.doctor_service import Told, ask_service
from indexer.clock import SystemClock
from indexer.collect.sockets import FILES_BESIDE, FILES_PER_SOURCE
from indexer.doctor.checks import Finding, Level, found
from indexer.doctor.facts import Engine
from indexer.doctor.judging.endpoints import judge_endpoints
from indexer.doctor.judging.engines import judge_engine
from indexer.doctor.judging.kubernetes import judge_pods
from indexer.doctor.judging.service import judge_replicas, judge_service
from indexer.doctor.judging.settings import Effective, judge_files, judge_settings, judge_start
from indexer.doctor.judging.sources import judge_followed, judge_sources, judge_states
from indexer.doctor.judging.store import judge_store
from indexer.doctor.judging.unknowable import what_nobody_knows
from indexer.doctor.places import is_loopback, is_loopback_host
from indexer.doctor.probes.engines import Looking
from indexer.doctor.probes.store import look_at_store
from indexer.hashing.chain import SCHEME
from indexer.settings import BadSettings, Settings, check_files, load, refuse_what_is_not_there, remarks
from indexer.settings.in_cluster import access_of
from indexer.settings.printed import MASK
from indexer.store.address import Address, BadAddress, parse

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

UNREACHABLE: Final = 3
INTERRUPTED: Final = 130
NAMES_SHOWN: Final = 20
ELSEWHERE: Final = "its loopback address leads to the service's machine, which is another one"


class Report(msgspec.Struct, kw_only=True):
    """For programs. `service`: who was asked, null for nobody. `complete`: false where Ctrl-C came first."""

    version: str
    service: str | None
    complete: bool
    counts: dict[str, int]
    findings: list[Finding]


def run(arguments: argparse.Namespace, stop: threading.Event, version: str) -> int:
    """Ask, look, judge, print. Raises `CommandFailed` and `BadSettings` for what was typed."""
    given = _given_settings(arguments)
    visit = _Visit(arguments, stop, given)
    try:
        findings = list(visit.findings(version))
    finally:
        visit.end()
    told = visit.told
    interrupted = stop.is_set()
    if arguments.json:
        counts = {level: sum(each.level == level for each in findings) for level in get_args(Level)}
        service = None if told is None else told.seen.url
        report = Report(version=version, service=service, complete=not interrupted, counts=counts, findings=findings)
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        print_findings(findings, output.console())
    if interrupted:
        print("kvindexer: stopped: what was not looked at yet is missing", file=sys.stderr)
        return INTERRUPTED
    if told is not None and told.seen.trouble is not None:
        return UNREACHABLE
    return int(any(finding.level == "problem" for finding in findings))


def _given_settings(arguments: argparse.Namespace) -> Settings | None:
    """Those of file, environment and flags where any is named; None: what a service tells."""
    if not (arguments.config or arguments.source or arguments.redis_url):
        return None
    return load(arguments.config, flags={"redis.url": arguments.redis_url}, source_flags=arguments.source)


class _Visit:
    """One run. The service is asked where it is named, or nothing else is."""

    def __init__(self, arguments: argparse.Namespace, stop: threading.Event, given: Settings | None) -> None:
        self._arguments = arguments
        self._stop = stop
        self._given = given
        self._clock = SystemClock()
        self._status = _Status(shows=sys.stderr.isatty() and not arguments.json)
        self.told: Told | None = None
        if given is None or arguments.url is not None:
            arguments.url = arguments.url or arguments.default_url
            client = client_of(arguments)
            self._status.say(f"asking {client.url}")
            try:
                self.told = ask_service(client, self._clock)
            finally:
                client.close()

    def findings(self, version: str) -> Iterator[Finding]:
        """In no order that matters: they are shown by group. Raises `CommandFailed`."""
        told, settings = self.told, self._settings()
        engines = self._engines()
        if told is not None:
            yield from judge_service(told.seen, version)
        if told is None or told.seen.trouble is None or self._given is not None:
            yield from self._of_settings(settings, engines or [])
        if engines is not None:
            yield from self._of_engines(engines, settings)
        yield from self._of_pods(settings)
        yield from self._of_store(settings)
        if told is not None:
            yield from judge_replicas(told.seen.partitions)

    def end(self) -> None:
        """Nothing more is done."""
        self._status.end()

    def _of_engines(self, engines: Sequence[Engine], settings: Settings | None) -> Iterator[Finding]:
        """Of those that are wanted, among all."""
        chosen = self._chosen(engines)
        others = {engine.name for engine in engines} - {engine.name for engine in chosen}
        bound = settings is not None and bool(settings.events.source_bind)
        yield from (each for each in judge_sources(engines, bound=bound) if each.subject not in others)
        yield from judge_followed(None if self.told is None else self.told.seen.models_followed, engines)
        yield from judge_states(chosen, {} if self.told is None else self.told.seen.unhealed)
        if not self._arguments.no_probe:
            yield from self._of_probes(chosen, settings)
        yield from what_nobody_knows(chosen)

    def _chosen(self, engines: Sequence[Engine]) -> Sequence[Engine]:
        pods = self._arguments.pods
        if not pods:
            return engines
        chosen = [engine for engine in engines if not {engine.pod, engine.address, *engine.aliases}.isdisjoint(pods)]
        if not chosen:
            known = ", ".join(sorted({engine.pod for engine in engines})[:NAMES_SHOWN]) or "none is registered"
            raise CommandFailed(f"--pods: no source is called {', '.join(pods)}; there are: {known}", 2)
        return chosen

    def _settings(self) -> Settings | None:
        return self._given if self.told is None or self._given is not None else self.told.settings

    def _engines(self) -> list[Engine] | None:
        """As the service has them, then those that only the settings name; None where neither says."""
        of_service = None if self.told is None else self.told.engines
        if of_service is None and self._given is None:
            return None
        by_name = {engine.name: engine for engine in of_service or ()}
        for source in self._given.sources if self._given is not None else ():
            described = msgspec.convert(source, Engine, from_attributes=True)
            by_name.setdefault(described.name, described)
        engines = list(by_name.values())
        return [engine.at_its_name() for engine in engines] if self._arguments.at_names else engines

    def _of_settings(self, settings: Settings | None, engines: Sequence[Engine]) -> Iterator[Finding]:
        said: list[str] = []
        if settings is not None:
            said += remarks(msgspec.structs.replace(settings, sources=()))  # shared endpoints have a check of their own
        if self._given is not None:
            errors = _why_not_started(self._given)
            yield from judge_start(errors)
            said += [] if errors else access_remarks(self._given)
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            allowed = float("inf") if hard == resource.RLIM_INFINITY else hard
            yield judge_files(allowed, len(engines) * FILES_PER_SOURCE + FILES_BESIDE, len(engines))
        yield from judge_settings(None if settings is None else _effective(settings), said, len(engines))

    def _of_probes(self, engines: Sequence[Engine], settings: Settings | None) -> Iterator[Finding]:
        looking = Looking(self._clock, self._stop, self._status.say)
        probed = looking.look(engines, self._arguments.listen_s, self._why_skipped)
        need = (Effective() if settings is None else _effective(settings)).need
        now_s = self._clock.wall_us() / 1e6
        for engine in engines:
            seen = probed[engine.name]
            yield from judge_endpoints(engine, seen, need, now_s)
            if seen.skipped is None and not self._stop.is_set():
                yield from judge_engine(engine, seen.http, seen.heard)

    def _why_skipped(self, place: str) -> str | None:
        return ELSEWHERE if self._is_elsewhere and is_loopback(place) else None

    @property
    def _is_elsewhere(self) -> bool:
        """The service is on another machine, and what it tells is told for that one."""
        if self.told is None or self._given is not None:
            return False
        url = urlsplit(self.told.seen.url)
        return url.scheme != "unix" and url.hostname is not None and not is_loopback_host(url.hostname)

    def _of_pods(self, settings: Settings | None) -> Iterator[Finding]:
        """Of the cluster's API server, where engines are looked for in pods."""
        pods = None if settings is None else settings.discovery.kubernetes
        if settings is None or pods is None or pods.selector is None:
            return
        if self._arguments.no_probe or self._stop.is_set():
            return
        if self._is_elsewhere:
            yield found("kubernetes.reachable", "unknown", "the service runs on another machine, and so does its token")
            return
        from indexer.discovery.kubernetes import look_at_pods, rules_of  # only where it is asked for

        self._status.say("asking the API server of the cluster")
        yield from judge_pods(asyncio.run(look_at_pods(rules_of(settings), access_of(pods, os.environ))))

    def _of_store(self, settings: Settings | None) -> Iterator[Finding]:
        if settings is None or settings.redis.url is None or self._arguments.no_probe or self._stop.is_set():
            return
        try:
            address = parse(settings.redis.url)
        except BadAddress:
            return  # of another version: ours would have refused it
        if why := self._why_store_skipped(address):
            yield found("store.reachable", "unknown", f"{address.place}: {why}")
            return
        self._status.say("asking the store")
        seen = asyncio.run(look_at_store(address, settings.redis.namespace, self._clock))
        wanted = {"scheme": SCHEME, "partitions": str(settings.redis.partitions)}
        yield from judge_store(seen, wanted, settings.redis.timeout_ms)

    def _why_store_skipped(self, address: Address) -> str | None:
        if MASK in {address.password, address.user}:
            return "its password is not told"
        local = address.kind == "unix" or any(is_loopback_host(host) for host, _ in address.hosts)
        return ELSEWHERE if local and self._is_elsewhere else None


def _effective(settings: Settings) -> Effective:
    return Effective(
        store=settings.redis.url is not None, lease_s=settings.redis.lease_s, sources_max=settings.limits.sources
    )


def _why_not_started(settings: Settings) -> list[str]:
    try:
        refuse_what_is_not_there(settings)
        check_files(settings)
        gates_of(settings)
    except BadSettings as bad:
        return [str(error) for error in bad.errors]
    return []


class _Status:
    """One line on a terminal that says what is being done."""

    def __init__(self, *, shows: bool) -> None:
        self._shows = shows

    def say(self, words: str) -> None:
        """Instead of what stood there."""
        if self._shows:
            print(f"\r\x1b[K{words} …", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Nothing stands there."""
        if self._shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
