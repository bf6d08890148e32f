"""A real vLLM: its own HTTP server, scheduler, block pool and event publisher, on CPU."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
import zmq

from tests.engine.journal import Journal
from tests.engine.processes import Process, free_ports
from tests.engine.waiting import wait_until

MODEL = "tiny"
BLOCK_SIZE = 32
"""The CPU attention takes multiples of 32 only."""

BLOCKS = 96
"""Small, so that the traffic evicts all the time; one block of these is the engine's null block."""

LONGEST_TOKENS = 1024
"""Prompt and output together; 32 of the blocks."""

STEP_TOKENS = 256
"""Tokens a step computes at most: longer prompts come in several steps, hence several batches of events."""

START_DEADLINE_S = 600.0
REQUEST_DEADLINE_S = 120.0

_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # opens /reset_prefix_cache
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # where it runs is the caller's choice
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class Completion:
    """What the engine says about one request that is done."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens it took from its cache: the truth this suite compares with."""
    output: tuple[int, ...]


class Engine:
    """One engine on fixed ports. It can die and come back on the same ones."""

    def __init__(self, python: Path, model: Path, logs: Path) -> None:
        self._python, self._model, self._logs = python, model, logs
        self._http_port, self._events_port, self._replay_port = free_ports(3)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        # Short: the engine makes unix sockets in its folder for temporary files, whose paths may have 107 characters.
        self._scratch = Path(tempfile.mkdtemp(prefix="kvi-"))
        self._client = httpx.Client(base_url=f"http://{self.address}", timeout=REQUEST_DEADLINE_S)
        self._process: Process | None = None
        self._journal: Journal | None = None

    @property
    def address(self) -> str:
        """Host and port of its HTTP server; also the pod's name."""
        return f"127.0.0.1:{self._http_port}"

    @property
    def events_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self._events_port}"

    @property
    def replay_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self._replay_port}"

    @property
    def journal(self) -> Journal:
        """What the running process has published."""
        assert self._journal is not None, "the engine is not running"
        return self._journal

    def start(self) -> None:
        """Start it and wait until it takes requests."""
        process = self._process = Process(self._command(), self._logs / "engine.log", self._environment())
        wait_until("the engine is healthy", lambda: self._is_healthy(process), deadline_s=START_DEADLINE_S)
        self._journal = Journal(self._context, self.replay_endpoint)

    def kill(self) -> None:
        """End it without a word to anybody."""
        if self._journal is not None:
            self._journal.close()
        if self._process is not None:
            self._process.kill()
        self._process = self._journal = None

    def close(self) -> None:
        """Leave nothing behind but the log."""
        self.kill()
        self._client.close()
        self._context.term()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def complete(self, prompt: tuple[int, ...], *, max_tokens: int, salt: str | None) -> Completion:
        """Send a completion request and wait for all of its output."""
        body = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0.0,  # repeatable; a seed per request would stop the CPU worker in chunked prefills
            "ignore_eos": True,
            "return_token_ids": True,
        }
        response = self._client.post("/v1/completions", json=body if salt is None else body | {"cache_salt": salt})
        response.raise_for_status()
        answer = response.json()
        return Completion(
            prompt_tokens=answer["usage"]["prompt_tokens"],
            cached_tokens=answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            output=tuple(answer["choices"][0]["token_ids"]),
        )

    def reset_prefix_cache(self) -> None:
        """Forget every cached block. The engine publishes the clear with its next step, not now."""
        self._client.post("/reset_prefix_cache").raise_for_status()

    def _is_healthy(self, process: Process) -> bool:
        process.assert_running()
        try:
            return self._client.get("/health").is_success
        except httpx.TransportError:
            return False

    def _environment(self) -> dict[str, str]:
        scratch = str(self._scratch)
        return _ENVIRONMENT | {"TMPDIR": scratch, "VLLM_CACHE_ROOT": scratch, "VLLM_CONFIG_ROOT": scratch}

    def _command(self) -> list[str]:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            # The engine binds only where the endpoint has a star; with an address it would connect.
            "endpoint": f"tcp://*:{self._events_port}",
            "replay_endpoint": f"tcp://127.0.0.1:{self._replay_port}",
        }
        options = {
            "--model": self._model,
            "--served-model-name": MODEL,
            "--load-format": "dummy",
            "--dtype": "float32",
            "--host": "127.0.0.1",
            "--port": self._http_port,
            "--block-size": BLOCK_SIZE,
            "--num-gpu-blocks-override": BLOCKS,
            "--max-model-len": LONGEST_TOKENS,
            "--max-num-batched-tokens": STEP_TOKENS,
            "--max-num-seqs": 4,
            "--seed": 1,
            "--kv-events-config": json.dumps(events),
        }
        switches = [
            "--skip-tokenizer-init",
            "--enforce-eager",
            "--enable-prefix-caching",
            "--enable-prompt-tokens-details",
        ]
        pairs = [str(part) for option in options.items() for part in option]
        # Not `vllm serve`: that command looks for a distribution of another name.
        return [str(self._python), "-m", "vllm.entrypoints.openai.api_server", *pairs, *switches]
