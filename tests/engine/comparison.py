"""The comparison itself: what the service says before a request against what the engine says after it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.engine.engine import BLOCK_SIZE, Completion, Engine
from tests.engine.service import Service, Standing
from tests.engine.traffic import Request, Traffic

PROGRESS_EVERY = 10


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One answer that was not what the engine did, with all that is needed to look into it."""

    phase: str
    number: int
    service: str
    prompt_tokens: int
    salted: bool
    cached_tokens: int
    newest: int | None
    standing: Standing
    source: dict[str, object]

    def __str__(self) -> str:
        salted = ", salted" if self.salted else ""
        return (
            f"request {self.number} ({self.phase}; {self.prompt_tokens} tokens{salted}): {self.service} said"
            f" {self.standing.reusable_tokens} reusable, the engine took {self.cached_tokens} from its cache;"
            f" engine at batch {self.newest}\n    answer: {self.standing}\n    source: {self.source}"
        )


class Comparison:
    """Requests sent one after the other, each judged for every service that watches the engine."""

    def __init__(self, engine: Engine, traffic: Traffic) -> None:
        self._engine, self._traffic = engine, traffic
        self.services: list[Service] = []
        self.requests = 0
        self.answers = 0
        self.hits: Counter[str] = Counter()
        """Judged requests by what the engine found: nothing, part or all of what a cache can hold of the prompt."""
        self.mismatches: list[Mismatch] = []

    def judge(self, phase: str, count: int) -> None:
        """Send that many requests of the traffic and compare each."""
        for _ in range(count):
            self._judge_one(phase)
            if self.requests % PROGRESS_EVERY == 0:
                print(f"  {self.requests} requests compared, {len(self.mismatches)} mismatches ({phase})", flush=True)

    def send_unjudged(self) -> None:
        """One request of the traffic whose answer is not asked for."""
        request = self._traffic.next_request()
        self._traffic.replied(request, self._complete(request).output)

    def send_burst(self, size: int) -> None:
        """Requests at the same time, not judged: while others run, nobody can know what the engine does next."""
        with ThreadPoolExecutor(size) as threads:
            list(threads.map(self._complete, self._traffic.burst(size)))

    def _judge_one(self, phase: str) -> None:
        request = self._traffic.next_request()
        newest = self._engine.journal.settled()
        standings = [(service, self._ask(service, request, newest)) for service in self.services]
        completion = self._complete(request)
        self._traffic.replied(request, completion.output)

        self.requests += 1
        self.hits[_extent(completion)] += 1
        for service, standing in standings:
            self.answers += 1
            # Before an engine's first batch there is nothing to be exact about.
            trusted = standing.is_exact or newest is None
            if not trusted or standing.reusable_tokens != completion.cached_tokens:
                self.mismatches.append(
                    Mismatch(
                        phase=phase,
                        number=self.requests,
                        service=service.name,
                        prompt_tokens=completion.prompt_tokens,
                        salted=request.salt is not None,
                        cached_tokens=completion.cached_tokens,
                        newest=newest,
                        standing=standing,
                        source=service.source(),
                    )
                )
                print(f"MISMATCH {self.mismatches[-1]}", flush=True)

    def _ask(self, service: Service, request: Request, newest: int | None) -> Standing:
        if newest is None:
            return service.lookup(request.prompt, request.salt)
        return service.wait_applied(newest, request.prompt, request.salt)

    def _complete(self, request: Request) -> Completion:
        completion = self._engine.complete(request.prompt, max_tokens=request.max_tokens, salt=request.salt)
        assert completion.prompt_tokens == len(request.prompt)
        assert len(completion.output) == request.max_tokens
        return completion


def _extent(completion: Completion) -> str:
    """How much of what the engine can reuse at all it did reuse. The last token is always computed."""
    if completion.cached_tokens == 0:
        return "nothing"
    return (
        "everything"
        if completion.cached_tokens == (completion.prompt_tokens - 1) // BLOCK_SIZE * BLOCK_SIZE
        else "a part"
    )
