"""The whole way as an operator goes it: tokens by the command, TLS, certificates of callers, a token taken out."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.certificates import Authority
from tests.support.redis_servers import wait_for

DEADLINE_S: Final = 60.0
PLAIN: Final = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}


def _run(*words: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = PLAIN if token is None else PLAIN | {"KVINDEXER_TOKEN": token}
    return subprocess.run(
        [sys.executable, "-m", "indexer", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment,
        check=False,
    )


class Secured:
    """A service with certificates of its own authority, which asks callers for certificates and tokens."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.tokens = folder / "tokens.yaml"
        self.tokens.touch(0o600)
        self.asks = self.new_token("--name", "router")
        self.rules = self.new_token("--name", "ops", "--scope", "lookup", "--scope", "admin")
        tls = self.authority.tls(client_ca=self.authority.file)
        settings = {
            "server": {"port": 0, "grpc_port": 0},
            "auth": {
                "tokens_file": str(self.tokens),
                "hash_secret": "pepper-of-this-deployment",
                "endpoints": ["10.0.0.0/8"],
                "tls": {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca},
            },
        }
        self.config = folder / "kvindexer.json"
        self.config.write_text(json.dumps(settings))
        self.pair = self.authority.issue("router", files="router")
        words = [sys.executable, "-m", "indexer", "serve", "--config", str(self.config)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=PLAIN)
        assert self.process.stdout is not None
        banner = self.process.stdout.readline()
        found = re.search(r"(https://[0-9.:]+), grpcs://([0-9.:]+)", banner)
        assert found, (banner, self.process.communicate(timeout=DEADLINE_S)[1])
        self.url, self.rpc = found[1], found[2]

    def new_token(self, *words: str) -> str:
        """Made by the command, as its help says: the entry appended, the token shown."""
        made = _run("token", *words)
        with self.tokens.open("a") as file:
            file.write(made.stdout)
        return made.stderr.rpartition(": ")[2].strip()

    def command(self, *words: str, token: str | None) -> subprocess.CompletedProcess[str]:
        """A client command with a certificate."""
        certificate, key = map(str, self.pair)
        flags = ("--url", self.url, "--ca", str(self.authority.file), "--cert", certificate, "--key", key)
        return _run(*words, *flags, token=token)

    def compared(self, *urls: str, token: str) -> subprocess.CompletedProcess[str]:
        """The services there, with one authority and one certificate for all."""
        certificate, key = map(str, self.pair)
        flags = ("--ca", str(self.authority.file), "--cert", certificate, "--key", key)
        return _run("compare", *urls, "--prompts", "demo", *flags, token=token)

    def asked(self, token: str | None) -> grpc.StatusCode:
        """How a lookup by gRPC ends."""
        credentials = grpc.ssl_channel_credentials(
            self.authority.file.read_bytes(), self.pair[1].read_bytes(), self.pair[0].read_bytes()
        )
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        with grpc.secure_channel(self.rpc, credentials) as channel:
            try:
                KvIndexerStub(channel).Lookup(LookupRequest(token_ids=[1]), metadata=metadata, timeout=DEADLINE_S)
            except grpc.RpcError as error:
                return error.code()  # type: ignore[attr-defined, no-any-return]
        return grpc.StatusCode.OK

    def close(self) -> None:
        """It ends in order."""
        self.process.send_signal(signal.SIGTERM)
        _, complaints = self.process.communicate(timeout=DEADLINE_S)
        assert 0 == self.process.returncode, complaints


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """Ends with the test."""
    service = Secured(tmp_path)
    try:
        yield service
    finally:
        service.close()


def test_callers_are_known_by_certificate_and_token(secured: Secured, tmp_path: Path) -> None:
    """By both, at both ports; what a token may not do is refused, and what it is not known for any more."""
    assert 0 == secured.command("sources", token=secured.asks).returncode
    for token, told in ((None, "401 token.missing"), ("kvi_none", "401 token.unknown")):
        refused = secured.command("sources", token=token)
        assert (1, True) == (refused.returncode, told in refused.stderr), refused.stderr
    refused = secured.command("sources", "add", "p=tcp://10.0.0.1:5557", token=secured.asks)
    assert "403 scope.missing" in refused.stderr
    refused = secured.command("sources", "add", "p=tcp://169.254.169.254:80", token=secured.rules)
    assert "403 endpoint.not_allowed: endpoint: within auth.endpoints" in refused.stderr
    added = secured.command("sources", "add", "p=tcp://10.0.0.1:5557", token=secured.rules)
    assert 0 == added.returncode, added.stderr

    without = _run("sources", "--url", secured.url, "--ca", str(secured.authority.file), token=secured.asks)
    assert (1, True) == (without.returncode, "ask for a certificate of yours" in without.stderr), without.stderr
    itself = secured.compared(secured.url, secured.url, token=secured.asks)
    assert (3, "") == (itself.returncode, itself.stderr), "both were asked, and nobody holds anything"
    untrusted = _run("sources", "--url", secured.url, token=secured.asks)
    assert "its certificate is not trusted" in untrusted.stderr

    assert grpc.StatusCode.OK is secured.asked(secured.asks)
    assert grpc.StatusCode.UNAUTHENTICATED is secured.asked(None)
    assert grpc.StatusCode.UNAUTHENTICATED is secured.asked("kvi_none")

    first, _, rest = secured.tokens.read_text().partition("\n- ")
    assert "router" in first
    fresh = tmp_path / "fresh"
    fresh.write_text("- " + rest)
    fresh.replace(secured.tokens)
    wait_for(lambda: secured.asked(secured.asks) is grpc.StatusCode.UNAUTHENTICATED, "the token to be refused")
    assert "401 token.unknown" in secured.command("sources", token=secured.asks).stderr
    assert grpc.StatusCode.OK is secured.asked(secured.rules)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "- {name: a, sha256: kvi_put-here-by-mistake, scopes: [lookup]}",
            "entry 1 (a): sha256: the SHA-256 of the token",
        ),
        ("name: a", "a list of entries is wanted"),
    ],
)
def test_a_file_that_is_wrong_is_told_before_anything_starts(tmp_path: Path, written: str, told: str) -> None:
    """By `serve`, and by `config --check`; exit code 2, and nothing of the file but names."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(written)
    config = tmp_path / "kvindexer.yaml"
    config.write_text(f"auth: {{tokens_file: {tokens}}}\nserver: {{port: 0}}\n")
    for words in (("serve",), ("config", "--check")):
        refused = _run(*words, "--config", str(config))
        assert 2 == refused.returncode
        assert f"kvindexer: auth.tokens_file: {tokens}: {told}" in refused.stderr
        assert "mistake" not in refused.stderr


def test_a_file_that_all_may_read_is_remarked(tmp_path: Path) -> None:
    """It holds no tokens, and is still nobody else's business."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("[]")
    tokens.chmod(0o644)
    config = tmp_path / "kvindexer.yaml"
    config.write_text(f"auth: {{tokens_file: {tokens}}}\n")

    assert f"{tokens} may be read by everybody on this machine" in _run("config", "--config", str(config)).stderr
    tokens.chmod(0o640)
    assert "everybody" not in _run("config", "--config", str(config)).stderr
