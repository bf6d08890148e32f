"""What is allowed and very likely a mistake."""

from __future__ import annotations

import pytest

from indexer.settings import load, remarks, unread_variables

KUBERNETES = [
    "KVINDEXER_SERVICE_HOST",
    "KVINDEXER_SERVICE_PORT",
    "KVINDEXER_SERVICE_PORT_HTTP",
    "KVINDEXER_PORT",
    "KVINDEXER_PORT_8080_TCP",
    "KVINDEXER_PORT_8080_TCP_PROTO",
    "KVINDEXER_PORT_8080_TCP_PORT",
    "KVINDEXER_PORT_8080_TCP_ADDR",
    "KVINDEXER_PORT_53_UDP_ADDR",
    "KVINDEXER_GRPC_SERVICE_HOST",
    "KVINDEXER_GRPC_PORT",
    "KVINDEXER_GRPC_PORT_50051_TCP_ADDR",
]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("KVINDEXER_FOO", "KVINDEXER_FOO in the environment is read by nobody"),
        ("KVINDEXER_SERVER_PORT", "did you mean KVINDEXER_SERVER__PORT?"),
        ("KVINDEXER_STALENESS_SCORE_TTL_S", "did you mean KVINDEXER_STALENESS__SCORE_TTL_S?"),
        ("KVINDEXER_SOURCE", "did you mean KVINDEXER_SOURCES?"),
        ("KVINDEXER_PORT", "did you mean KVINDEXER_SERVER__PORT?"),
        ("KVINDEXER_GRPC_PORT", "did you mean KVINDEXER_SERVER__GRPC_PORT?"),
        ("KVINDEXER_SCORE_TTL_S", "did you mean KVINDEXER_STALENESS__SCORE_TTL_S?"),
        ("KVINDEXER_REDIS_URL", "did you mean KVINDEXER_REDIS__URL?"),
    ],
)
def test_a_variable_that_nobody_reads_is_told(name: str, told: str) -> None:
    """With the nearest that would be read; never its value."""
    (said,) = unread_variables({name: "secret", "PATH": "/bin", "KVINDEXER_SERVICE_HOST": "10.0.0.1"})

    assert told in said
    assert "secret" not in said


@pytest.mark.parametrize("name", KUBERNETES)
def test_what_kubernetes_invents_is_passed_over(name: str) -> None:
    """It sets these for services called kvindexer and kvindexer-grpc, whether one wants them or not."""
    assert [] == unread_variables({name: "tcp://10.0.0.1:8080"})


def test_what_is_read_is_no_mistake() -> None:
    """Settings are judged where they are read."""
    names = [
        "KVINDEXER_SERVER__PORT",
        "KVINDEXER_SOURCES",
        "KVINDEXER_ROLES",
        "KVINDEXER_URL",
        "KVINDEXER_TOKEN",
        "KVINDEXERS",
        "kvindexer_x",
    ]

    assert [] == unread_variables(dict.fromkeys(names, "1"))


_TOKENS = {"KVINDEXER_AUTH__TOKENS_FILE": "t"}
_TLS = {"KVINDEXER_AUTH__TLS__CERTIFICATE": "c", "KVINDEXER_AUTH__TLS__KEY": "k"}
_OPEN = {"KVINDEXER_SERVER__HOST": "10.0.0.1"}
_CALLERS = {"KVINDEXER_AUTH__TLS__CLIENT_CA": "a"}


_SOCKET = {"KVINDEXER_SERVER__UDS": "/s", "KVINDEXER_AUTH__UDS": "anonymous"}
_NO_PORT = {
    "KVINDEXER_SERVER__UDS": "/s",
    "KVINDEXER_SERVER__PORT": "off",
    "KVINDEXER_SERVER__GRPC_PORT": "off",
}


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, []),
        (_TOKENS, []),
        (_TOKENS | _TLS | _OPEN, []),
        (_TLS | _CALLERS | _OPEN, []),
        (_OPEN, ["there is no access control"]),
        (_TLS | _OPEN, ["there is no access control"]),
        (_TOKENS | _OPEN, ["auth.tls.certificate is not set"]),
        (_TOKENS | _TLS | _OPEN | {"KVINDEXER_COMPAT__ANONYMOUS": "true"}, ["without a token"]),
        ({"KVINDEXER_COMPAT__ANONYMOUS": "true"}, ["compat.anonymous does nothing"]),
        (_SOCKET, ["auth.uds does nothing"]),
        (_TOKENS | _SOCKET, []),
        (_OPEN | {"KVINDEXER_SERVER__UDS": "/s", "KVINDEXER_SERVER__PORT": "off"}, ["there is no access control"]),
        (_OPEN | _NO_PORT, []),
        (_TOKENS | _OPEN | _NO_PORT, []),
        (_TOKENS | {"KVINDEXER_ROLES": "collect,lookup,epp"}, ["there is no endpoint picker"]),
        ({"KVINDEXER_ROLES": "collect,lookup,epp", "KVINDEXER_SERVER__EPP_PORT": "9100"}, []),
        ({"KVINDEXER_SERVER__EPP_PORT": "9100"}, ["nobody listens there without the role epp"]),
        (_TOKENS | {"KVINDEXER_EVENTS__SOURCE_BIND": "['tcp://*:5557']"}, ["engines show no token"]),
    ],
)
def test_doors_that_are_open_are_told(environment: dict[str, str], told: list[str]) -> None:
    """To other machines, and not meant to be very likely."""
    said = remarks(load(environment=environment))

    assert len(told) == len(said), said
    assert all(part in line for part, line in zip(told, said, strict=True))


@pytest.mark.parametrize(
    ("endpoint", "read_on_the_way"),
    [("http://h:4318", True), ("https://h", False), ("http://127.0.0.1:4318", False), ("http://[::1]:4318", False)],
)
def test_keys_that_cross_the_network_as_they_are(endpoint: str, read_on_the_way: bool) -> None:
    """To a collector elsewhere without TLS; what they are is not told."""
    environment = {
        "KVINDEXER_TELEMETRY__OTLP_ENDPOINT": endpoint,
        "KVINDEXER_TELEMETRY__OTLP_HEADERS": "{x-key: secret}",
    }
    said = remarks(load(environment=environment))

    assert read_on_the_way == any("telemetry.otlp_headers cross the network" in each for each in said)
    assert "secret" not in str(said)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            "KUBERNETES__NAMESPACES",
            "[a]",
            ["discovery.kubernetes does nothing while discovery.kubernetes.selector is null"],
        ),
        ("DNS__SERVERS", "[10.0.0.1]", ["discovery.dns does nothing while discovery.dns.names is empty"]),
        ("KUBERNETES__SELECTOR", "app=vllm", []),
        ("DNS__NAMES", "{vllm: {}}", []),
    ],
)
def test_a_discovery_that_looks_for_nobody_is_told(key: str, value: str, told: list[str]) -> None:
    """Where the rest of its settings says that it was meant to."""
    assert told == remarks(load(environment={f"KVINDEXER_DISCOVERY__{key}": value}))
