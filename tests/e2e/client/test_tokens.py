"""The client, and our commands by it, at a service that asks callers who they are."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from kvindexer_client import Client, Refused
from tests.support.callers import token_of, write_tokens
from tests.support.served_fleet import COMMAND, ENVIRONMENT, ServedFleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG_S = 20.0


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedFleet, Path]]:
    """With a router that may look up, and an operator; and its socket. No token is in its log in the end."""
    folder = tmp_path_factory.mktemp("tokens")
    file = write_tokens(folder / "tokens.json", ("router", ("lookup",), None), ("operator", ("lookup", "admin"), None))
    with ServedFleet("--uds", str(folder / "s"), KVINDEXER_AUTH__TOKENS_FILE=str(file)) as fleet:
        yield fleet, folder / "s"
        log = fleet.log()
    assert [] == [name for name in ("router", "operator") if token_of(name) in log]


def test_a_token_opens_what_its_scopes_say(controlled: tuple[ServedFleet, Path]) -> None:
    """Asking with one of them, changing with another."""
    fleet, _ = controlled
    with Client(fleet.url, token_of("router"), timeout_s=LONG_S) as index:
        assert 3 == index.lookup([1, 2, 3]).prompt_tokens
        with pytest.raises(Refused) as caught:
            index.clear_source("10.0.0.1:8000")
    assert (403, "scope.missing") == (caught.value.status, caught.value.code)
    with Client(fleet.url, token_of("operator"), timeout_s=LONG_S) as index:
        assert 1 == index.clear_source("10.0.0.1:8000")["sources"]


@pytest.mark.parametrize("token", [None, "another"])
def test_without_its_token_a_router_goes_on_without_the_index(
    controlled: tuple[ServedFleet, Path], token: str | None
) -> None:
    """And soon does not ask any more: the next answer would be the same."""
    fleet, _ = controlled
    with Client(fleet.url, token, timeout_s=LONG_S) as index:
        rankings = [index.rank(["b", "a"], [1, 2, 3], timeout_s=LONG_S) for _ in range(4)]
        with pytest.raises(Refused) as caught:
            index.lookup([1, 2, 3])

    assert [["b", "a"]] * 4 == [ranking.pods for ranking in rankings]
    assert all("401" in str(ranking.failure) for ranking in rankings[:3])
    assert "left alone" in str(rankings[3].failure)
    assert 401 == caught.value.status
    assert "another" not in str(caught.value)


def test_commands_show_the_token_that_they_are_given(controlled: tuple[ServedFleet, Path]) -> None:
    """As a flag, or in the environment; over the port and the socket."""
    fleet, uds = controlled
    for url in (fleet.url, f"unix:{uds}"):
        for flags, environment, code in (
            (["--token", token_of("router")], {}, 0),
            ([], {"KVINDEXER_TOKEN": token_of("router")}, 0),
            ([], {}, 1),
        ):
            done = subprocess.run(
                [*COMMAND, "sources", "--url", url, *flags],
                capture_output=True,
                text=True,
                check=False,
                env={**ENVIRONMENT, **environment},
            )
            assert code == done.returncode, done.stderr
            assert ("10.0.0.1:8000" in done.stdout) == (code == 0)
            assert (f"{url} answered 401 " in done.stderr) == (code == 1)


def test_a_command_over_the_socket_without_control(tmp_path: Path) -> None:
    """`unix:/PATH`, also with the two slashes that some write."""
    with ServedFleet("--uds", str(tmp_path / "s")):
        for url in (f"unix:{tmp_path}/s", f"unix://{tmp_path}/s"):
            done = subprocess.run(
                [*COMMAND, "partitions", "--url", url],
                capture_output=True,
                text=True,
                check=False,
                env=ENVIRONMENT,
            )
            assert done.stdout.startswith("memory mode"), done.stderr
