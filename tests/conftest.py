"""How hard the property tests try: `short` in make test, `long` in make soak (--hypothesis-profile).

And which stores the contract suite runs against: one in make test, all that are there in make test-matrix. And that
tests have those events of the log happen that they are named for (tests/support/logged.py).
"""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.logged import Events, events_of

os.environ["KVINDEXER_SERVER__GRPC_PORT"] = "0"  # services that tests start take a free one

# No deadline and no check of speed: a shared machine is slow whenever it likes, and no test asserts on time.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("short", _UNTIMED, max_examples=100, stateful_step_count=40)
settings.register_profile("long", _UNTIMED, max_examples=5_000, stateful_step_count=200, print_blob=True)
settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Only here can pytest learn of an option."""
    parser.addoption("--store-kinds", default="valkey", help="valkey, redis-8, system, cluster, several, or all")
    parser.addoption("--api-servers", default="fake", help="of tests of discovery in Kubernetes: fake, real, or all")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Of the tests in that table it is asked that these events came."""
    wanted = events_of(item.nodeid)
    if not wanted:
        yield
        return
    with Events() as seen:
        yield
    assert wanted <= seen, f"events of the log that did not come: {wanted - seen}"
