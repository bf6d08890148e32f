"""What the README tells a reader to type does what it says, against a running demo."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest

from api.access.tokens import TokenAccess
from tests.support.certificates import Authority
from tests.support.redis_servers import own_server
from tests.support.text_models import published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
KVINDEXER = [sys.executable, "-m", "indexer"]
DEADLINE_S = 60.0


def _readme_lines() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


MADE_BODY = re.compile(r"(?:python3|\.venv/bin/python) -c ")
CURLS = [line for line in _readme_lines() if line.startswith("curl ") or (MADE_BODY.match(line) and " | curl " in line)]
TEXT_CURLS = [line for line in CURLS if ":8083/" in line]
"""Asked of a service that has a tokenizer; the others of the demo."""
DEMO_CURLS = [line for line in CURLS if line not in TEXT_CURLS]
LOOKUPS = [line for line in DEMO_CURLS if re.search(r"/v1/lookup[ ?']", line)]
PRINTED = [line for line in _readme_lines() if MADE_BODY.match(line) and line not in CURLS]
"""A number that is then asked for."""
OPERATED = [line for line in _readme_lines() if re.match(r"kvindexer (?!serve|demo|compare|token)", line)]
"""What operators do with replicas and store."""
COMPARES = [line for line in _readme_lines() if line.startswith("kvindexer compare")]
TOKENS = [line for line in _readme_lines() if line.startswith("kvindexer token")]
INSTALLS = [line for line in _readme_lines() if line.startswith("install ")]
SERVES = [line for line in _readme_lines() if re.match(r"(?:KVINDEXER_\w+=\S+ )?kvindexer serve", line)]
TEXT_SERVES = [line for line in SERVES if line.startswith("KVINDEXER_MODELS__")]
MADE = [line for line in _readme_lines() if line.startswith("make ")]
PROTOS = [line for line in _readme_lines() if "grpc_tools.protoc" in line]
CODE = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
RPC_CODE = [code for code in CODE if "import grpc" in code]
OPEN_RPC_CODE = [code for code in RPC_CODE if "insecure_channel" in code]
SECURE_RPC_CODE = [code for code in RPC_CODE if "secure_channel" in code and code not in OPEN_RPC_CODE]


def _lines_of(process: subprocess.Popen[str]) -> Queue[str]:
    lines: Queue[str] = Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)

    threading.Thread(target=read, name="output", daemon=True).start()
    return lines


def _address_in(lines: Queue[str]) -> str:
    while True:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", lines.get(timeout=DEADLINE_S))
        if found:
            return found[1]


def _end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(DEADLINE_S)
    finally:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()


def _like_curl(arguments: list[str], piped: bytes = b"") -> tuple[int, bytes]:
    """Ask as curl would: it need not be on the machine that tests. `piped`: what comes on its standard input."""
    options = argparse.ArgumentParser()
    options.add_argument("-s", action="store_true")
    options.add_argument("-H", dest="headers", action="append", default=[])
    options.add_argument("-d", "--data-binary", dest="data")
    options.add_argument("url")
    asked = options.parse_args(arguments)
    headers = dict(header.split(": ", 1) for header in asked.headers)
    body = piped if asked.data == "@-" else None if asked.data is None else asked.data.encode()
    request = urllib.request.Request(asked.url, body, headers)  # noqa: S310  a URL of our own README
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:  # noqa: S310
        return answer.status, answer.read()


def _asked(line: str, port: str) -> tuple[int, bytes]:
    """That line, asked at another port; what stands before the `|` makes the body."""
    before, pipe, asks = line.rpartition(" | ")
    piped = _printed(before) if pipe else b""
    return _like_curl(shlex.split(re.sub(r"(?<=http://127\.0\.0\.1:)80\d\d(?=/)", port, asks))[1:], piped)


def _printed(line: str) -> bytes:
    """What one line of Python writes."""
    return subprocess.run(
        [sys.executable, *shlex.split(line)[1:]], cwd=ROOT, capture_output=True, timeout=DEADLINE_S, check=True
    ).stdout


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[str, str]]:
    """A running demo: its port, and where it speaks gRPC."""
    process = subprocess.Popen(
        [*KVINDEXER, "demo", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        lines = _lines_of(process)
        port = _address_in(lines)
        while (found := re.match(r"gRPC, .*: (127\.0\.0\.1:\d+)$", lines.get(timeout=DEADLINE_S))) is None:
            pass
        yield port, found[1]
    finally:
        _end(process)


@pytest.fixture(scope="module")
def demo_port(demo: tuple[str, str]) -> str:
    """The port of a running demo."""
    return demo[0]


@pytest.mark.parametrize("line", DEMO_CURLS)
def test_a_question_of_the_readme_is_answered(line: str, demo_port: str) -> None:
    """Each curl line, its port changed to the demo's, is answered with success; a pick once it hits."""
    if "/v1/pick" in line:
        _until_it_hits(lambda: {"reusable_tokens": _asked(line, demo_port)[1].count(b" 16 live\n")})
        return
    status, body = _asked(line, demo_port)

    assert status in {200, 202}
    assert body.startswith(b"{")


@pytest.mark.parametrize("line", LOOKUPS)
def test_a_lookup_of_the_readme_hits(line: str, demo_port: str) -> None:
    """In whatever form: every engine comes to hold it as the recording goes on, and a reader sees a hit."""
    best = _until_it_hits(lambda: json.loads(_asked(line, demo_port)[1])["pods"][0])

    assert (16, 16) == (best["matched_tokens"], best["reusable_tokens"])


def test_the_forms_of_the_readme_ask_the_same(demo_port: str) -> None:
    """JSON, octets, MessagePack, and the hashes that `/v1/hash` tells; both items of the batch are answered."""
    (told,) = (json.loads(_asked(line, demo_port)[1]) for line in CURLS if "/v1/hash" in line)
    (batch,) = (json.loads(_asked(line, demo_port)[1]) for line in CURLS if "/v1/lookup/batch" in line)
    lengths = [json.loads(_asked(line, demo_port)[1])["prompt_tokens"] for line in LOOKUPS]

    assert [17] * 5 == lengths
    assert [17] * 2 == [item["prompt_tokens"] for item in batch["items"]]
    assert 2 == sum(f'"block_hashes": {json.dumps(told["hashes"])}' in line for line in CURLS)


@pytest.mark.parametrize("line", PRINTED)
def test_the_local_hash_of_the_readme_is_the_one_that_is_asked_for(line: str, demo_port: str) -> None:
    """And some engine comes to hold that block."""
    (asks,) = (line for line in CURLS if "/query_by_hash" in line)
    assert f'"block_hashes": [{_printed(line).decode().strip()}]' in asks

    _until_it_hits(lambda: {"reusable_tokens": len(json.loads(_asked(asks, demo_port)[1])["scores"])})


def _until_it_hits(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    ends_at = time.monotonic() + DEADLINE_S
    while (best := ask())["reusable_tokens"] == 0:
        assert time.monotonic() < ends_at, best
        time.sleep(0.05)
    return best


@pytest.mark.parametrize("line", TEXT_SERVES)
def test_the_texts_of_the_readme_become_tokens(line: str, tmp_path: Path) -> None:
    """By the files of a model, in a service that is started as it says."""
    setting, _, command = line.partition(" ")
    name, _, folder = setting.partition("=")
    words = [*KVINDEXER, *shlex.split(command)[1:], "--port", "0"]
    process = subprocess.Popen(
        words,
        env={**os.environ, name: str(published(tmp_path / Path(folder).name))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        port = _address_in(_lines_of(process))
        answers = [json.loads(_asked(asks, port)[1]) for asks in TEXT_CURLS]
    finally:
        _end(process)

    assert 2 == len(answers)
    assert all(answer["tokenizer"]["tokens"] == answer["prompt_tokens"] > 0 for answer in answers)


@pytest.mark.parametrize("line", COMPARES)
def test_a_comparison_of_the_readme_is_made(line: str, demo_port: str) -> None:
    """Of the demo with itself, whose engines go on meanwhile: it may have moved in between."""
    words = shlex.split(re.sub(r"http://127\.0\.0\.1:\d+", f"http://127.0.0.1:{demo_port}", line))[1:]
    done = subprocess.run([*KVINDEXER, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    assert done.returncode in {0, 1}, done.stderr
    assert " agree" in done.stdout


@pytest.fixture(scope="module")
def store_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a store for lines that name one at its usual port, where a real one may be."""
    with own_server(tmp_path_factory.mktemp("store")) as server:
        yield server.port


@pytest.mark.parametrize("line", [line for line in SERVES if line not in TEXT_SERVES])
def test_a_serve_line_of_the_readme_comes_up(line: str, store_port: int, tmp_path: Path) -> None:
    """It serves, although nobody answers at that address, and ends on Ctrl-C."""
    words = shlex.split(line.replace(":6379", f":{store_port}").replace("/run/kvindexer", str(tmp_path)))
    named = {name: value for name, _, value in (word.partition("=") for word in words[: words.index("kvindexer")])}
    if "tokens.yaml" in line:
        _made_tokens(tmp_path)
    process = subprocess.Popen(
        [*KVINDEXER, *words[words.index("kvindexer") + 1 :], "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, **named},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert _address_in(_lines_of(process))
    finally:
        status = _end(process)

    assert status in {0, 130}


@pytest.fixture(scope="module")
def replicas(store_port: int) -> Iterator[str]:
    """Where the first of two replicas answers; both are there, and all partitions owned."""
    with contextlib.ExitStack() as stack:
        url = ""
        for name in ("replica-2", "replica-1"):
            words = [*KVINDEXER, "serve", "--port", "0", "--redis-url", f"redis://127.0.0.1:{store_port}/1"]
            process = subprocess.Popen(
                words,
                env={**os.environ, "KVINDEXER_REDIS__REPLICA": name, "KVINDEXER_REDIS__PARTITIONS": "4"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(_end, process)
            url = f"http://127.0.0.1:{_address_in(_lines_of(process))}"
        ends_at = time.monotonic() + DEADLINE_S
        while not _is_shared_out(listed := json.loads(_like_curl([f"{url}/v1/partitions"])[1])):
            assert time.monotonic() < ends_at, listed
            time.sleep(0.05)
        yield url


def _is_shared_out(listed: dict[str, list[dict[str, object]]]) -> bool:
    is_there = ["live"] * 2 == [replica["state"] for replica in listed["replicas"]]
    return is_there and all(partition["owner"] for partition in listed["partitions"])


@pytest.mark.parametrize("line", OPERATED)
def test_what_the_readme_does_with_replicas_is_done(line: str, replicas: str, store_port: int) -> None:
    """Asked of two replicas, and done to their store."""
    words = shlex.split(line.replace(":6379", f":{store_port}/1"), comments=True)[1:]
    asks = [] if words[0] in {"redis", "plan"} else ["--url", replicas]
    agreed = ["--yes"] if words[0] == "redis" else []
    done = subprocess.run(
        [*KVINDEXER, *words, *asks, *agreed], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert 0 == done.returncode, done.stderr
    assert done.stdout


def _made_tokens(folder: Path) -> tuple[Path, list[str]]:
    """The file that the README's lines make in that folder, and what they show once."""
    entries, shown = folder / "tokens.yaml", []
    for line in INSTALLS:
        subprocess.run(shlex.split(line), cwd=folder, timeout=DEADLINE_S, check=True)
    for line in TOKENS:
        words, _, file = line.partition(">>")
        made = subprocess.run(
            [*KVINDEXER, *shlex.split(words)[1:]], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        )
        with (folder / file.strip()).open("a") as appended:
            appended.write(made.stdout)
        shown.append(made.stderr.rpartition(": ")[2].strip())
    return entries, shown


def test_the_tokens_of_the_readme_are_known_to_a_service(tmp_path: Path) -> None:
    """Entries are appended to a file that nobody else can read, and which a service reads."""
    entries, shown = _made_tokens(tmp_path)

    assert 0o600 == stat.S_IMODE(entries.stat().st_mode)
    assert shown
    assert all(TokenAccess(entries).caller(f"Bearer {token}".encode()) for token in shown)


@pytest.mark.parametrize("code", SECURE_RPC_CODE)
def test_the_code_for_grpc_with_token_and_certificate_asks(code: str, tmp_path: Path) -> None:
    """As it stands but for the address, of a service with those tokens and a certificate; without a token it fails."""
    entries, shown = _made_tokens(tmp_path)
    tls = Authority(tmp_path).tls()
    settings = {"TOKENS_FILE": str(entries), "TLS__CERTIFICATE": str(tls.certificate), "TLS__KEY": str(tls.key)}
    process = subprocess.Popen(
        [
            *KVINDEXER,
            "serve",
            "--port",
            "0",
            "--grpc-port",
            "0",
            "--source",
            "10.0.0.1:8000=tcp://127.0.0.1:9,model=llama",
        ],
        env={**os.environ, **{f"KVINDEXER_AUTH__{name}": value for name, value in settings.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = _lines_of(process)
        while (found := re.search(r"grpcs://(127\.0\.0\.1:\d+)", lines.get(timeout=DEADLINE_S))) is None:
            pass
        code = code.replace("127.0.0.1:50051", found[1])
        answers = [_python(code, tmp_path, KVINDEXER_TOKEN=token) for token in shown]
        refused = _ran(code, tmp_path, KVINDEXER_TOKEN=shown[0][:-1])
    finally:
        _end(process)

    assert ["no_signal [('10.0.0.1:8000', 0)]\n"] * 2 == answers
    assert (1, True) == (refused.returncode, "UNAUTHENTICATED" in refused.stderr)


def test_the_code_for_routers_in_the_readme_is_that_which_is_tested() -> None:
    """tests/e2e/client and tests/gateways run it as it stands, but for address and model."""
    tested = [(ROOT / path).read_text() for path in ("tests/e2e/client/from_a_router.py", "tests/gateways/from_ray.py")]

    assert [code.partition("\n\n")[2] for code in tested] == [code for code in CODE if code not in RPC_CODE]


@pytest.mark.parametrize("code", OPEN_RPC_CODE)
def test_the_code_for_grpc_in_the_readme_asks(code: str, demo: tuple[str, str]) -> None:
    """As it stands but for the address, of a running demo: it prints a state and three engines, and comes to hit."""
    assert "127.0.0.1:50051" in code
    told: list[str] = []

    def ask() -> dict[str, Any]:
        told.append(_python(code.replace("127.0.0.1:50051", demo[1]), ROOT))
        return {"reusable_tokens": told[-1].count(", 16)")}

    _until_it_hits(ask)
    assert re.match(r"(exact|degraded) \[(\('[^']+', \d+\)(, )?){3}\]\n", told[-1])


@pytest.mark.parametrize("line", PROTOS)
def test_the_client_that_the_readme_generates_asks(line: str, demo: tuple[str, str], tmp_path: Path) -> None:
    """It needs nothing of ours, and says what the packaged one says."""
    words = [sys.executable, *shlex.split(line)[1:]]
    words = [word.replace("out=.", f"out={tmp_path}") for word in words]
    subprocess.run(words, cwd=ROOT, check=True, timeout=DEADLINE_S)
    code = OPEN_RPC_CODE[0].replace("127.0.0.1:50051", demo[1]).replace("schemas.rpc.kvindexer", "kvindexer")

    assert "schemas" not in code
    assert _python(code, tmp_path).startswith(("exact ", "degraded "))


def _ran(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def _python(code: str, folder: Path, **environment: str) -> str:
    done = _ran(code, folder, **environment)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.mark.parametrize(
    ("target", "command"), [("run", "demo"), ("run-redis", "demo --redis"), ("run-cluster", "demo --cluster")]
)
def test_the_demos_of_the_readme_are_those_that_are_tested(target: str, command: str) -> None:
    """By what make would do."""
    planned = subprocess.run(
        ["make", "-n", "--no-print-directory", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert planned.splitlines()[-1].endswith(f"/kvindexer {command}")
    assert any(line.split("#")[0].strip() == f"make {target}" for line in _readme_lines())


def test_the_readme_has_such_lines() -> None:
    """The tests above cannot pass for want of lines, and there are none beside those that they run."""
    tested = [*CURLS, *PRINTED, *OPERATED, *COMPARES, *INSTALLS, *TOKENS, *SERVES, *MADE, *PROTOS]
    assert sorted(tested) == sorted(_readme_lines())
    assert {"run", "run-redis", "run-cluster", "test"} == {line.split()[1] for line in MADE}
    assert (1, 1, 1) == (len(OPEN_RPC_CODE), len(SECURE_RPC_CODE), len(PROTOS))
    assert (5, 2, 1, 1) == (len(LOOKUPS), len(TEXT_CURLS), len(TEXT_SERVES), len(PRINTED))
    assert INSTALLS
    assert {"partitions", "drain", "redis"} <= {line.split()[1] for line in OPERATED}
    assert any("--redis-url" in line for line in SERVES)
    assert any("--redis-url" not in line for line in SERVES)
