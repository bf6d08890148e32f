"""Our service as its users run it: the command, a port, REST."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.engine.engine import MODEL, Engine
from tests.engine.processes import Process, free_ports
from tests.engine.waiting import wait_until

START_DEADLINE_S = 60.0
APPLY_DEADLINE_S = 30.0
"""For the engine's newest batch to be visible in an answer."""

SETTLE_DEADLINE_S = 60.0
"""For a source to be settled after it joined or came back."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What an answer says about one source."""

    answer_state: str
    state: str
    bound: str
    generation: str
    sequence: int | None
    reusable_tokens: int
    matched_tokens: int

    @property
    def is_exact(self) -> bool:
        """Nothing is known to be missing, and nothing held may be false."""
        return (self.answer_state, self.state, self.bound) == ("exact", "live", "exact")


class Service:
    """One `kvindexer serve`, asked about one engine."""

    def __init__(self, name: str, command: Path, engine: Engine, logs: Path, *, source: str | None) -> None:
        """Start it and wait until it answers.

        Args:
            name: what the suite calls it in its report.
            command: the `kvindexer` program.
            engine: whose pod the answers are about.
            logs: folder for its output.
            source: value of `--source`; None starts it without any.
        """
        (port,) = free_ports(1)
        flags = [] if source is None else ["--source", source]
        self.name = name
        self._pod = engine.address
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10.0)
        self._process = Process([str(command), "serve", "--port", str(port), *flags], logs / f"{name}.log")
        wait_until("the service is healthy", self._is_healthy, deadline_s=START_DEADLINE_S)

    def close(self) -> int:
        """End it in order; return its exit code."""
        self._client.close()
        return self._process.terminate()

    def register(self, engine: Engine) -> None:
        """Add the engine as a source while the service runs."""
        body = {
            "pod": engine.address,
            "endpoint": engine.events_endpoint,
            "replay_endpoint": engine.replay_endpoint,
            "model": MODEL,
            "engine": "vllm",
        }
        response = self._client.post("/v1/sources", json=body)
        assert response.status_code == httpx.codes.CREATED, response.text

    def lookup(self, prompt: tuple[int, ...], salt: str | None = None) -> Standing:
        """Ask what the engine holds of a prompt."""
        body = {"model": MODEL, "token_ids": prompt}
        response = self._client.post("/v1/lookup", json=body if salt is None else body | {"cache_salt": salt})
        response.raise_for_status()
        answer = response.json()
        (entry,) = [entry for entry in answer["pods"] if entry["pod"] == self._pod]
        return Standing(
            answer_state=answer["state"],
            state=entry["state"],
            bound=entry["bound"],
            generation=entry["generation"],
            sequence=entry["sequence"],
            reusable_tokens=entry["reusable_tokens"],
            matched_tokens=entry["matched_tokens"],
        )

    def wait_applied(self, newest: int, prompt: tuple[int, ...], salt: str | None) -> Standing:
        """Ask about a prompt until the answer is about the engine's newest batch; return that answer."""
        return wait_until(
            f"{self.name} has applied batch {newest}",
            lambda: self.lookup(prompt, salt),
            holds=lambda standing: standing.sequence == newest,
            deadline_s=APPLY_DEADLINE_S,
        )

    def wait_live(self, *, after_generation: str | None = None) -> dict[str, Any]:
        """Wait until the engine's source is live, in another generation than the one named; return its entry."""
        return wait_until(
            f"{self.name}: the source is live, and not in generation {after_generation}",
            self.source,
            holds=lambda entry: entry.get("state") == "live" and entry.get("generation") != after_generation,
            deadline_s=SETTLE_DEADLINE_S,
        )

    def source(self) -> dict[str, Any]:
        """The engine's entry of `GET /v1/sources`; empty where there is none."""
        response = self._client.get("/v1/sources")
        response.raise_for_status()
        entries = [entry for entry in response.json()["sources"] if entry["pod"] == self._pod]
        assert len(entries) <= 1
        return entries[0] if entries else {}

    def _is_healthy(self) -> bool:
        self._process.assert_running()
        try:
            return self._client.get("/healthz").is_success
        except httpx.TransportError:
            return False
