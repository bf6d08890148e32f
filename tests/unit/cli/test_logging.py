"""What comes to the service's log."""

from __future__ import annotations

import json
import logging

import pytest

from api.cli import serve
from api.cli.serve import log_from
from indexer.clock import SystemClock
from indexer.settings.sections import Redis, Settings, Telemetry
from indexer.texts.engines import Engines, Patience
from indexer.texts.health import Health
from indexer.texts.local import TextLimits
from schemas.lookup import TextPrompt
from tests.support.collecting import run_on
from tests.support.said import Said
from tests.support.tokenize_engine import engine


@pytest.fixture(autouse=True)
def _as_before(caplog: pytest.LogCaptureFixture) -> None:
    """Levels are the process's."""
    for library in ("httpx", "httpcore"):
        caplog.set_level(logging.NOTSET, library)  # which is taken back after the test
    caplog.set_level(logging.DEBUG)


def test_a_text_is_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks decides how many there are."""

    async def body() -> None:
        clock = SystemClock()
        engines = Engines(clock, Health(clock, Said()))
        async with engine() as one:
            await engines.tokens(
                [one.url], "m", TextPrompt(prompt="planted"), TextLimits(99, 99), Patience(clock, clock.now() + 20)
            )
            await engines.close()

    log_from("debug")
    run_on("asyncio", body())
    assert [] == [record for record in caplog.records if record.name.startswith(("httpx", "httpcore"))]


def test_the_line_of_the_start_names_the_replica_as_the_others_do(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the one on stdout: the first object that a collector of logs gets."""
    redis = Redis(url="redis://127.0.0.1:6379", replica="replica-1")
    serve._announce(["http://127.0.0.1:8080"], Settings(redis=redis, telemetry=Telemetry(log_format="json")))

    said = json.loads(capsys.readouterr().out)
    assert ("listening", "replica-1") == (said["event"], said["replica"])
