"""[I/O] All looks at all engines: connections first, then everybody is listened to at once, then asked.

Threads of its own, a bounded number; whoever takes no connection is not waited for again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

import zmq

from indexer.collect.options import CollectOptions
from indexer.collect.sockets import allow_files, open_context
from indexer.doctor.facts import Probed
from indexer.doctor.probes.engine_http import Asked, ask_engines
from indexer.doctor.probes.listening import listen
from indexer.doctor.probes.replaying import Asking
from indexer.doctor.probes.routes import no_route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from threading import Event

    from indexer.doctor.facts import Engine, EngineHttp, Heard, Replayed
    from indexer.ports import Clock

THREADS: Final = 32
ENGINES_MAX: Final = 1_024
"""Sources that are looked at; the others are told to be left out."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Looking:
    """One round of looks. `progress` is told in words what is being done; `stop` ends all early."""

    def __init__(self, clock: Clock, stop: Event, progress: Callable[[str], None]) -> None:
        self._clock = clock
        self._stop = stop
        self._progress = progress

    def look(self, engines: Sequence[Engine], listen_s: float, skip: Callable[[str], str | None]) -> dict[str, Probed]:
        """By name. `skip`: why an endpoint or address is not to be looked at from here."""
        found = {engine.name: Probed() for engine in engines}
        shown: list[Engine] = []
        for engine in engines:
            why = skip(engine.endpoint or "") if len(shown) < ENGINES_MAX else f"doctor looks at {ENGINES_MAX} at most"
            found[engine.name].skipped = why
            shown += [] if why else [engine]
        places = [each for engine in shown for each in (engine.endpoint, engine.replay_endpoint) if each]
        self._progress(f"connecting to {len(places)} endpoints")
        blocked = self._each(dict.fromkeys(places), no_route)
        heard, replayed = self._conversations(shown, blocked, listen_s)
        http = self._http([engine for engine in shown if engine.address and not skip(engine.address)])
        for engine in shown:
            probed = found[engine.name]
            probed.no_route = blocked.get(engine.endpoint or "")
            probed.replay_no_route = blocked.get(engine.replay_endpoint or "")
            probed.heard = heard.get(engine.endpoint or "")
            probed.replayed = replayed.get(engine.name)
            probed.http = http.get(engine.name)
        return found

    def _conversations(
        self, engines: Sequence[Engine], blocked: Mapping[str, str | None], listen_s: float
    ) -> tuple[dict[str, Heard], dict[str, Replayed]]:
        options = CollectOptions(sources_max=max(1, 2 * len(engines)))
        allow_files(len(engines), options)
        context = open_context(options)
        try:
            heard = self._listen(context, [e.endpoint for e in engines if e.endpoint], blocked, listen_s)
            asked = {
                engine.name: engine
                for engine in engines
                if engine.replay_endpoint and blocked.get(engine.replay_endpoint) is None
            }
            if asked:
                self._progress(f"asking {len(asked)} replay endpoints")
            asking = Asking(context, self._clock, self._stop)

            def ask(name: str) -> Replayed:
                engine = asked[name]
                ear = heard.get(engine.endpoint or "")
                return asking.replayed(engine.replay_endpoint or "", None if ear is None else ear.first)

            return heard, self._each(asked, ask)
        finally:
            context.destroy(linger=0)

    def _listen(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoints: Sequence[str],
        blocked: Mapping[str, str | None],
        listen_s: float,
    ) -> dict[str, Heard]:
        open_ones = [endpoint for endpoint in dict.fromkeys(endpoints) if blocked.get(endpoint) is None]
        if not open_ones or self._stop.is_set():
            return {}

        def told(left_s: float, batches: int) -> None:
            self._progress(f"listening to {len(open_ones)} endpoints: {left_s:.0f} s left, {batches} batches")

        return listen(context, open_ones, listen_s, self._clock, self._stop, told)

    def _http(self, engines: Sequence[Engine]) -> dict[str, EngineHttp]:
        if not engines or self._stop.is_set():
            return {}
        self._progress(f"asking {len(engines)} engines over HTTP")
        return ask_engines({e.name: Asked(e.address or "", e.dp_rank) for e in engines}, self._stop)

    def _each(self, keys: Iterable[_Key], work: Callable[[_Key], _Value]) -> dict[_Key, _Value]:
        """Done by some threads; what was not begun when `stop` is set is left out."""
        done: dict[_Key, _Value] = {}

        def one(key: _Key) -> None:
            if not self._stop.is_set():
                done[key] = work(key)

        with ThreadPoolExecutor(THREADS, thread_name_prefix="doctor") as pool:
            for future in [pool.submit(one, key) for key in keys]:
                future.result()
        return done
