"""Settings from the file, the environment and flags: precedence, nearest keys, rules, contradictions, masking."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from indexer.errors import SettingsError
from indexer.model import Descriptor
from indexer.settings import BadSettings, Settings, load, masked, refuse_what_is_not_there, remarks
from indexer.settings.printed import without_password


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Where a test writes its file."""
    return tmp_path / "kvindexer.yaml"


def complaints(caught: pytest.ExceptionInfo[BadSettings]) -> list[str]:
    """The errors, one text each."""
    assert all(isinstance(error, SettingsError) for error in caught.value.errors)
    return [str(error) for error in caught.value.errors]


def test_nothing_given_is_the_defaults() -> None:
    """No file, no environment, no flags; the promised defaults."""
    settings = load(environment={})

    assert Settings() == settings
    assert ("127.0.0.1", 8080, ()) == (settings.server.host, settings.server.port, settings.sources)
    assert (128, 8 << 20, 256 << 20, 16 << 20) == (
        settings.events.rcvhwm,
        settings.events.lane_bytes,
        settings.events.lanes_total_bytes,
        settings.events.max_message_bytes,
    )
    assert ("keep", 5, 10, 5, 1.0) == (
        settings.events.gap_policy,
        settings.events.probe_interval_s,
        settings.events.replay_timeout_s,
        settings.events.min_engine_restart_s,
        settings.events.suspect_weight,
    )
    assert (5, 60, 3600) == (
        settings.staleness.stale_after_s,
        settings.staleness.score_ttl_s,
        settings.staleness.retain_s,
    )
    assert {"gpu": None, "cpu": None, "storage": 3600, "remote": None, "unknown": None} == msgspec.to_builtins(
        settings.staleness.entry_ttl_s
    )
    assert {"gpu": 1.0, "cpu": 0.8, "storage": 0.5, "remote": 0.5, "unknown": 0.0} == msgspec.to_builtins(
        settings.models.weights
    )
    assert (None, 16, 10) == (settings.redis.url, settings.redis.partitions, settings.redis.lease_s)
    assert (16 << 20, 65_536) == (settings.limits.body_bytes, settings.limits.orphans)


def test_the_environment_wins_over_the_file_and_flags_over_both(config: Path) -> None:
    """Key by key, not section by section."""
    config.write_text("events: {rcvhwm: 1, lane_bytes: 2048, gap_policy: clear}\nserver: {port: 1}\n")
    settings = load(
        config,
        {"KVINDEXER_EVENTS__LANE_BYTES": "4096", "KVINDEXER_SERVER__PORT": "2"},
        {"server.port": 3, "server.host": None},
    )

    assert (1, 4096, "clear") == (settings.events.rcvhwm, settings.events.lane_bytes, settings.events.gap_policy)
    assert (3, "127.0.0.1") == (settings.server.port, settings.server.host)


def test_environment_values_are_yaml_where_the_setting_is_no_text() -> None:
    """Maps, lists, numbers and switches; text stays as it is written; an empty value says nothing."""
    settings = load(
        environment={
            "KVINDEXER_MODELS__ALIASES": "{gpt: llama}",
            "KVINDEXER_EVENTS__SOURCE_BIND": "['tcp://*:5557']",
            "KVINDEXER_METRICS__PER_SOURCE": "false",
            "KVINDEXER_STALENESS__ENTRY_TTL_S__STORAGE": "off",
            "KVINDEXER_STALENESS__ENTRY_TTL_S__CPU": "7.5",
            "KVINDEXER_REDIS__NAMESPACE": "123",
            "KVINDEXER_SERVER__HOST": "",
            "KVINDEXER_PORT": "tcp://10.0.0.1:80",
            "OTHER__KEY": "x",
        }
    )

    assert {"gpt": "llama"} == settings.models.aliases
    assert ("tcp://*:5557",) == settings.events.source_bind
    assert not settings.metrics.per_source
    assert (None, 7.5) == (settings.staleness.entry_ttl_s.storage, settings.staleness.entry_ttl_s.cpu)
    assert ("123", "127.0.0.1") == (settings.redis.namespace, settings.server.host)


@pytest.mark.parametrize("off", ["off", "Off", "OFF", "'off'", '"off"', "false", "null", "~"])
@pytest.mark.parametrize("layer", ["file", "environment"])
def test_what_may_be_off_is_switched_off_by_that_word(tmp_path: Path, off: str, layer: str) -> None:
    """With quotes or without, in a file as in the environment; what is text keeps its text."""
    file = tmp_path / "kvindexer.yaml"
    if layer == "file":
        file.write_text(f"server: {{grpc_port: {off}, uds: 'off'}}\nstaleness: {{entry_ttl_s: {{storage: {off}}}}}\n")
        settings = load(file, environment={})
    else:
        names = {"KVINDEXER_SERVER__GRPC_PORT": off, "KVINDEXER_STALENESS__ENTRY_TTL_S__STORAGE": off}
        settings = load(environment={**names, "KVINDEXER_SERVER__UDS": "off"})

    assert (None, None) == (settings.server.grpc_port, settings.staleness.entry_ttl_s.storage)
    assert "off" == settings.server.uds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("evnets: {rcvhwm: 1}", "evnets: unknown key in kvindexer.yaml (did you mean events?)"),
        ("events: {rcvhmw: 1}", "events.rcvhmw: unknown key in kvindexer.yaml (did you mean rcvhwm?)"),
        (
            "staleness: {entry_ttl_s: {gqu: 1}}",
            "staleness.entry_ttl_s.gqu: unknown key in kvindexer.yaml (did you mean gpu?)",
        ),
        (
            "server: {zzz: 1}",
            (
                "server.zzz: unknown key in kvindexer.yaml (known: host, port, grpc_port, epp_port, uds, ready_wait_s, "
                "drain_s, lame_duck_s, "
            ),
        ),
        (
            "models: {tokenizers: {a: {engine: true}, m: {fil: x}}}",
            "models.tokenizers.m.fil: unknown key in kvindexer.yaml (did you mean file?)",
        ),
        (
            "models: {tokenizers: {m: {file: 5}}}",
            "models.tokenizers: 'm': expected text or null at .file, got {'m': {'file': 5}} (kvindexer.yaml)",
        ),
        ("server: 5", "server: unknown key in kvindexer.yaml (server is a section, its keys are wanted)"),
        ("events: {rcvhwm: 0}", "events.rcvhwm: expected a whole number >= 1, got 0 (kvindexer.yaml)"),
        ("events: {rcvhwm: two}", "events.rcvhwm: expected a whole number, got 'two' (kvindexer.yaml)"),
        ("events: {rcvhwm: true}", "events.rcvhwm: expected a whole number, got True (kvindexer.yaml)"),
        ("events: {rcvhwm: }", "events.rcvhwm: expected a whole number, got None (kvindexer.yaml)"),
        ("events: {gap_policy: maybe}", "events.gap_policy: one of keep, clear wanted, got 'maybe' (kvindexer.yaml)"),
        ("staleness: {score_ttl_s: .nan}", "staleness.score_ttl_s: expected a number > 0.0, got nan (kvindexer.yaml)"),
        (
            "staleness: {score_ttl_s: .inf}",
            "staleness.score_ttl_s: expected a number <= 31536000.0, got inf (kvindexer.yaml)",
        ),
        ("models: {aliases: {a: 1}}", "models.aliases: 'a': expected text, got {'a': 1} (kvindexer.yaml)"),
        ("models: {weights: {gpu: 1.5}}", "models.weights.gpu: expected a number <= 1.0, got 1.5 (kvindexer.yaml)"),
        ("sources: {a: b}", "sources: a list wanted"),
        ("sources: [7]", "sources[0]: a map or a NAME=ENDPOINT entry wanted, got 7"),
        ("sources: ['a=tcp://h:1', 'a=tcp://h:2']", "sources[1]: a is given twice"),
        ("sources: [{pod: a, endpont: 'tcp://h:1'}]", "sources[0].endpont: unknown key (did you mean endpoint?)"),
        (
            "sources: [{pod: a, endpoint: 'tcp://*:1'}]",
            "sources[0].endpoint: tcp://HOST:PORT or ipc://PATH wanted, got 'tcp://*:1'; to bind, use --source-bind",
        ),
        ("sources: [{pod: a}]", "sources[0].endpoint: a source needs an endpoint"),
        ("sources: [{pod: a, endpoint: 'tcp://h:1', dp_rank: -1}]", "sources[0].dp_rank: 0..65535, got -1"),
        ("sources: [{pod: 5, endpoint: 'tcp://h:1'}]", "sources[0].pod: expected text, got 5 (kvindexer.yaml)"),
        (
            "sources: [{pod: a, endpoint: 'tcp://h:1', role: both of them}]",
            "sources[0].role: one of prefill, decode, both wanted, got 'both of them' (kvindexer.yaml)",
        ),
        (
            "sources: [{pod: a, endpoint: 'tcp://h:1', blocks_total: many}]",
            "sources[0].blocks_total: expected a whole number or null, got 'many' (kvindexer.yaml)",
        ),
        (
            "sources: [{pod: a, endpoint: 'tcp://h:1', blocks_total: 0}]",
            "sources[0].blocks_total: 1..4294967295, got 0 (kvindexer.yaml)",
        ),
        ("sources: [{pod: a, endpoint: }]", "sources[0].endpoint: expected text, got None (kvindexer.yaml)"),
        ("sources: ['a=tcp://*:1']", "sources[0]: tcp://HOST:PORT or ipc://PATH wanted, got 'tcp://*:1'; to bind, use"),
        (
            "server: {roles: [lookup, x]}",
            "server.roles: one or more of collect, lookup, epp wanted, got ['lookup', 'x']",
        ),
        ("server: {roles: []}", "server.roles: one or more of collect, lookup, epp wanted, got [] (kvindexer.yaml)"),
        ("redis: {replica: 'a:b'}", "redis.replica: 1..64 letters, digits, `_`, `.` or `-` wanted, got 'a:b'"),
        (
            'redis: {namespace: "kvi\\n"}',
            "redis.namespace: 1..64 letters, digits, `_`, `.` or `-` wanted, got 'kvi\\n'",
        ),
        (
            "redis: {journal_bytes: 1}",
            "redis.journal_bytes: expected a whole number >= 1048576, got 1 (kvindexer.yaml)",
        ),
        ("[]", "kvindexer.yaml: the top level is a map of sections"),
        ("server: {port: 1, port: 2}", "kvindexer.yaml: 'port' is given twice, line 1, column 19"),
        ("a: [", "kvindexer.yaml: not YAML: while parsing"),
    ],
)
def test_a_bad_file_is_told_key_rule_and_value(config: Path, text: str, complaint: str) -> None:
    """One line an error, with the file it stands in."""
    config.write_text(text)
    with pytest.raises(BadSettings) as caught:
        load(config, {})

    (told,) = complaints(caught)
    assert told.replace(str(config), config.name).startswith(complaint)


def test_a_misspelt_key_in_a_map_of_the_environment_is_told_with_the_nearest(config: Path) -> None:
    """Each of them, from wherever it comes, and nothing else of that map."""
    config.write_text("models: {tokenizers: {m: {tmplate: x}}}")
    with pytest.raises(BadSettings) as caught:
        load(config, {})
    assert [f"models.tokenizers.m.tmplate: unknown key in {config} (did you mean template?)"] == complaints(caught)

    name = "KVINDEXER_MODELS__TOKENIZERS"
    with pytest.raises(BadSettings) as caught:
        load(environment={name: "{m: {fil: x, engin: true}, n: {file: y}}"})

    assert [
        f"models.tokenizers.m.fil: unknown key in {name} (did you mean file?)",
        f"models.tokenizers.m.engin: unknown key in {name} (did you mean engine?)",
    ] == complaints(caught)


def test_all_that_is_wrong_with_an_entry_is_told_at_once(config: Path) -> None:
    """Field by field, each with the file."""
    config.write_text("sources: [{pod: '', dp_rank: x, role: y, replay: 'tcp://h:2'}]")
    with pytest.raises(BadSettings) as caught:
        load(config, {})

    assert [
        f"sources[0].pod: a name has 1..512 printable characters, got '' ({config})",
        f"sources[0].dp_rank: expected a whole number, got 'x' ({config})",
        f"sources[0].role: one of prefill, decode, both wanted, got 'y' ({config})",
        f"sources[0].replay: unknown key (did you mean replay_endpoint?) ({config})",
    ] == complaints(caught)


def test_all_errors_are_told_at_once() -> None:
    """Of all layers, in one go."""
    with pytest.raises(BadSettings) as caught:
        load(
            environment={"KVINDEXER_EVENTS__RCVHWM": "x", "KVINDEXER_SEVRER__PORT": "1"},
            flags={"server.port": 70000},
            source_flags=["a", "b=tcp://h:1", "b=tcp://h:2"],
        )

    assert sorted(complaints(caught)) == [
        "--source: NAME=tcp://HOST:PORT or NAME=ipc://PATH wanted, got 'a'",
        "--source: b is given twice",
        "events.rcvhwm: expected a whole number, got x (KVINDEXER_EVENTS__RCVHWM)",
        "server.port: expected a whole number <= 65535, got 70000 (--port)",
        "sevrer.port: unknown key in KVINDEXER_SEVRER__PORT (did you mean server?)",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "staleness: {score_ttl_s: 5}",
            "staleness.score_ttl_s: must be greater than staleness.stale_after_s (5), got 5",
        ),
        ("staleness: {retain_s: 60}", "staleness.retain_s: must be greater than staleness.score_ttl_s (60), got 60"),
        (
            "events: {lanes_total_bytes: 2048, max_message_bytes: 1024}",
            "events.lanes_total_bytes: must be at least events.lane_bytes",
        ),
        (
            "events: {lanes_total_bytes: 2048, lane_bytes: 2048}",
            "events.lanes_total_bytes: must be at least events.max_message_bytes",
        ),
        ("events: {reconnect_max_ms: 5}", "events.reconnect_max_ms: must be at least events.reconnect_ms (10), got 5"),
        ("auth: {tls: {key: k}}", "auth.tls.certificate: auth.tls.certificate and auth.tls.key come together"),
        (
            "server: {port: 9000, grpc_port: 9000}",
            "server.grpc_port: must differ from server.port (9000): one port cannot speak both",
        ),
        (
            "server: {grpc_port: 9002, roles: [collect, lookup, epp]}",
            "server.epp_port: must differ from server.grpc_port (9002): one port cannot speak both",
        ),
        ("auth: {tls: {client_ca: k}}", "auth.tls.client_ca: needs auth.tls.certificate and auth.tls.key"),
        ("events: {source_bind: ['tcp://*:5557', 'tcp://*:5557']}", "events.source_bind: tcp://*:5557 is given twice"),
        (
            "events: {source_bind: [nowhere]}",
            "events.source_bind: tcp://*:PORT, tcp://ADDRESS:PORT or ipc://PATH wanted",
        ),
        ("events: {source_bind: ['tcp://*:65536']}", "events.source_bind: a port is 0..65535, got 'tcp://*:65536'"),
        (
            "sources: ['a=tcp://h:1,alias=x', 'b=tcp://h:2,alias=http://X/']",
            "sources: b: aliases: 'http://X/' already names pod 'a'",
        ),
        (
            "sources: ['a=tcp://h:1', 'a=tcp://h:2,rank=1,tenant=t']",
            "sources: a#1: pod: the name is taken by a source of another tenant",
        ),
        (
            "{redis: {url: 'redis://h', lease_s: 90}, staleness: {retain_s: 80}}",
            "staleness.retain_s: must be greater than redis.lease_s (90), got 80: what is stored must outlive",
        ),
        (
            "redis: {url: 'redis://h', lease_s: 4, heartbeat_s: 2.5}",
            "redis.heartbeat_s: must be at most half of redis.lease_s (4), got 2.5: one heartbeat may be missed",
        ),
        (
            "redis: {url: 'redis://h', lease_s: 1, heartbeat_s: 0.5}",
            "redis.lease_s: must be at least 4 times redis.timeout_ms (500), got 1: a renewal is tried up to 4 times",
        ),
        ("telemetry: {otlp_endpoint: 'h:4318'}", "telemetry.otlp_endpoint: http:// or https://, a host, and no user"),
        (
            "telemetry: {otlp_endpoint: 'http://u:p@h'}",
            "telemetry.otlp_endpoint: http:// or https://, a host, and no user",
        ),
        (
            "telemetry: {otlp_endpoint: 'http://[h'}",
            "telemetry.otlp_endpoint: http:// or https://, a host, and no user",
        ),
        ("telemetry: {otlp_metrics_s: 60}", "telemetry.otlp_metrics_s: needs telemetry.otlp_endpoint"),
        ("telemetry: {otlp_headers: {x-key: k}}", "telemetry.otlp_headers: needs telemetry.otlp_endpoint"),
        (
            "telemetry: {otlp_endpoint: 'http://h', otlp_headers: {Content-Length: '1'}}",
            "telemetry.otlp_headers: names of headers wanted, and none of accept-encoding, connection,",
        ),
        (
            "telemetry: {otlp_endpoint: 'http://h', otlp_headers: {'x key': k}}",
            "telemetry.otlp_headers: names of headers wanted, and none of accept-encoding, connection,",
        ),
        (
            'telemetry: {otlp_endpoint: "http://h", otlp_headers: {x-key: "k\\r\\nx-other: 1"}}',
            "telemetry.otlp_headers: values in printable ASCII wanted, without blanks around them",
        ),
        (
            f"telemetry: {{otlp_endpoint: 'http://h', otlp_headers: {dict.fromkeys('abcdefghijklmnopq', 'k')}}}",
            "telemetry.otlp_headers: at most 16, got 17",
        ),
        ("server: {roles: lookup}", "server.roles: without collect a replica knows only what is in the store: set"),
        ("server: {roles: 'lookup,collect,lookup'}", "server.roles: each once, got lookup, collect, lookup"),
        (
            "{server: {roles: [lookup]}, redis: {url: 'redis://h'}, sources: ['a=tcp://h:1']}",
            "sources: only a replica with the role collect subscribes to engines; this one follows the store",
        ),
        (
            "{server: {roles: [lookup]}, redis: {url: 'redis://h'}, events: {source_bind: ['tcp://*:5557']}}",
            "events.source_bind: only a replica with the role collect subscribes to engines",
        ),
        ("models: {follow: [m]}", "models.follow: whoever collects applies all sources of its partitions"),
        (
            "{server: {roles: lookup}, redis: {url: 'redis://h'}, models: {follow: [m, n, m]}}",
            "models.follow: each once, got m, n, m",
        ),
        ("server: {port: off}", "server.port: can be off only beside server.uds (--uds)"),
        ("auth: {uds: anonymous}", "auth.uds: anonymous needs server.uds (--uds)"),
        ("{limits: {sources: 1}, sources: ['a=tcp://h:1,ranks=0-1']}", "sources: at most limits.sources (1), got 2"),
    ],
)
def test_settings_are_checked_against_each_other(config: Path, text: str, complaint: str) -> None:
    """Well-formed alone, wrong together."""
    config.write_text(text)
    with pytest.raises(BadSettings) as caught:
        load(config, {})

    assert [complaint] == [told[: len(complaint)] for told in complaints(caught)]


def test_without_a_store_its_settings_need_not_agree() -> None:
    """Nobody goes by them."""
    environment = {"KVINDEXER_STALENESS__RETAIN_S": "9", "KVINDEXER_STALENESS__SCORE_TTL_S": "8"}

    assert 9 == load(environment=environment | {"KVINDEXER_REDIS__LEASE_S": "0.5"}).staleness.retain_s


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://u:hush@h", "redis.url: an address begins with redis://, rediss://, unix://, redis+cluster://"),
        ("redis://u:hush@a,b", "redis.url: an address names one host, or begins with redis+cluster://"),
        ("redis://u:hush@h:x", "redis.url: an address names hosts as host or host:port"),
        ("redis+sentinel://u:hush@h", "redis.url: an address names the service that the sentinels watch"),
        ("redis://u:hush@[h", "redis.url: an address is a URL"),
        ("redis://u:hu/sh@h", "redis.url: an address has a number as its database; in user and password / ? # [ ] are"),
    ],
)
def test_an_address_of_a_store_is_checked_at_once(url: str, told: str) -> None:
    """The rule that it breaks; never the address."""
    with pytest.raises(BadSettings) as caught:
        load(environment={}, flags={"redis.url": url})

    (complaint,) = complaints(caught)
    assert complaint.startswith(told)
    assert "hush" not in complaint


@pytest.mark.parametrize(
    "given",
    [
        {"environment": {"KVINDEXER_ROLES": "lookup"}},
        {"environment": {"KVINDEXER_SERVER__ROLES": "[lookup]"}},
        {"environment": {"KVINDEXER_SERVER__ROLES": "lookup"}},
        {"environment": {"KVINDEXER_ROLES": "collect,lookup"}, "flags": {"server.roles": "lookup"}},
    ],
)
def test_roles_are_words_with_commas(given: dict[str, dict[str, str]]) -> None:
    """Or a list, where there are lists."""
    environment = given["environment"] | {"KVINDEXER_REDIS__URL": "redis://h"}

    assert ("lookup",) == load(environment=environment, flags=given.get("flags")).server.roles
    assert ("lookup", "collect") == load(environment={}, flags={"server.roles": "lookup, collect"}).server.roles
    assert ("collect", "lookup") == load(environment={}).server.roles


def test_sources_come_from_file_environment_and_flags(config: Path) -> None:
    """As map or as flag text; a flag replaces the same pod and rank, and its origin says so."""
    config.write_text(
        "sources:\n- {pod: a, endpoint: 'tcp://a:1', aliases: [x], labels: {zone: z}, blocks_total: 9}\n- b=tcp://b:1\n"
    )
    settings = load(config, {"KVINDEXER_SOURCES": "c=tcp://c:1\n d=tcp://d:1"}, source_flags=["b=tcp://b:2"])

    assert {
        "a": Descriptor(
            pod="a", endpoint="tcp://a:1", aliases=("x",), labels={"zone": "z"}, blocks_total=9, origin="config"
        ),
        "b": Descriptor(pod="b", endpoint="tcp://b:2", origin="flag"),
        "c": Descriptor(pod="c", endpoint="tcp://c:1", origin="config"),
        "d": Descriptor(pod="d", endpoint="tcp://d:1", origin="config"),
    } == {descriptor.pod: descriptor for descriptor in settings.sources}


def test_an_empty_file_and_empty_sections_are_no_error(config: Path) -> None:
    """A commented-out configuration says nothing."""
    config.write_text("# nothing\n")
    assert Settings() == load(config, {})
    config.write_text("server:\nsources:\n")
    assert Settings() == load(config, {})


def test_a_file_that_is_not_there_is_told(config: Path) -> None:
    """By its name."""
    with pytest.raises(BadSettings, match="No such file"):
        load(config, {})


def test_secrets_are_masked_when_printed() -> None:
    """The password in a url, the hash secret, what headers hold; the rest of the url and of headers stays readable."""
    shown = masked(
        load(
            environment={
                "KVINDEXER_REDIS__URL": "rediss://user:p%40ss%2Fw@ord@redis.example:6379/0",
                "KVINDEXER_AUTH__HASH_SECRET": "hush-hush",
                "KVINDEXER_TELEMETRY__OTLP_ENDPOINT": "https://h",
                "KVINDEXER_TELEMETRY__OTLP_HEADERS": "{authorization: Bearer hush, x-key: hush}",
            },
            source_flags=["a=tcp://h:1,model=m"],
        )
    )

    assert "rediss://user:***@redis.example:6379/0" == shown["redis"]["url"]
    assert "redis://h:1/0?db=1&password=***&x=2" == without_password("redis://h:1/0?db=1&password=a@b&x=2")
    assert "***" == shown["auth"]["hash_secret"]
    assert {"authorization": "***", "x-key": "***"} == shown["telemetry"]["otlp_headers"]
    assert [{"pod": "a", "endpoint": "tcp://h:1", "model": "m", "origin": "flag"}] == shown["sources"]
    assert "hush" not in str(shown)
    assert masked(Settings())["auth"]["hash_secret"] is None


def test_secrets_are_masked_in_errors(config: Path) -> None:
    """A secret that is no text is not shown either."""
    config.write_text("auth: {hash_secret: 123456}\nredis: {url: 987654}\n")
    with pytest.raises(BadSettings) as caught:
        load(config, {})

    assert 2 == len(complaints(caught))
    assert "123456" not in str(caught.value)
    assert "987654" not in str(caught.value)
    assert "got ***" in str(caught.value)


@pytest.mark.parametrize(
    "written",
    ["{x-key: hush", "hush", "[hush]", "{x-key: [hush]}", "{x-key: 'hush\n\n'}", "{'hu sh': hush}", "{x: 'hushé'}"],
)
def test_headers_are_masked_in_errors(written: str) -> None:
    """Whatever is wrong with them: a key may stand in any place."""
    environment = {
        "KVINDEXER_TELEMETRY__OTLP_ENDPOINT": "https://h",
        "KVINDEXER_TELEMETRY__OTLP_HEADERS": written,
    }
    with pytest.raises(BadSettings) as caught:
        load(environment=environment)

    assert 1 == len(complaints(caught))
    assert "telemetry.otlp_headers: " in str(caught.value)
    assert "hu" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("KVINDEXER_ROLES", "collect", "server.roles: this version answers lookups in every role; add lookup"),
    ],
)
def test_what_this_version_cannot_do_is_refused(variable: str, value: str, told: str) -> None:
    """Not ignored: who sets it would believe in it. The value is not repeated."""
    settings = load(environment={variable: value})
    with pytest.raises(BadSettings) as caught:
        refuse_what_is_not_there(settings)

    (complaint,) = complaints(caught)
    assert complaint.startswith(told)
    assert "secret" not in complaint
    refuse_what_is_not_there(Settings())


def test_a_port_given_twice_is_remarked() -> None:
    """An engine binds port + rank for both endpoints: with neighbouring base ports they meet."""
    settings = load(environment={}, source_flags=["p=tcp://h:5557,replay=tcp://h:5558,ranks=0-1"])

    (remark,) = remarks(settings)
    assert remark.startswith("tcp://h:5558 is given for replay of p rank 0 and for events of p rank 1")
    assert [] == remarks(load(environment={}, source_flags=["p=tcp://h:5557,replay=tcp://h:6557,ranks=0-7"]))


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5557", "tcp://127.0.0.1:*", "tcp://[::]:0", "ipc:///run/kv", "tcp://h:1"]
)
def test_endpoints_to_bind(endpoint: str) -> None:
    """Any address, any port, a path."""
    assert (endpoint,) == load(environment={}, flags={"events.source_bind": [endpoint]}).events.source_bind


def test_what_is_printed_can_be_read_again(config: Path) -> None:
    """The printed form is a configuration file, but for secrets and the origin of sources."""
    settings = load(environment={"KVINDEXER_EVENTS__RCVHWM": "7", "KVINDEXER_MODELS__ALIASES": "{a: b}"})
    config.write_bytes(msgspec.yaml.encode(masked(settings)))

    assert settings == load(config, {})
