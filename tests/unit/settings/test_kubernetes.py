"""Settings of discovery in Kubernetes: what is refused, in words that say what is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexer.settings import BadSettings, check_files, load
from indexer.settings.discovery import Kubernetes
from indexer.settings.in_cluster import ACCOUNT, Access, access_of, is_one_namespace
from indexer.settings.label_selector import check_selector, is_label_name
from indexer.settings.ranks import ranks_of


def loaded(*flags: str, **keys: object) -> Kubernetes:
    """With these keys of the section."""
    given = {f"discovery.kubernetes.{key}": value for key, value in keys.items()}
    roles = {"server.roles": flags} if flags else {}
    return load(environment={}, flags={**given, **roles}).discovery.kubernetes


@pytest.mark.parametrize(
    "selector",
    [
        "app=vllm",
        "app == vllm",
        "app!=vllm,tier in (gpu, cpu) , x notin (y)",
        "app",
        "!canary",
        "! canary",
        "example.com/app=vllm-0.9_x",
        "llm-d.ai/inference-serving=true",
        "app=",
        "app in ()",
        "A9=b",
    ],
)
def test_a_selector_that_kubernetes_takes(selector: str) -> None:
    """Is taken."""
    assert check_selector(selector) is None
    assert selector == loaded(selector=selector).selector


@pytest.mark.parametrize(
    ("selector", "at"),
    [
        ("app=vllm,", 10),
        (",app=vllm", 1),
        ("app vllm", 5),
        ("app=vl lm", 8),
        ("app=-vllm", 5),
        ("=vllm", 1),
        ("app in gpu", 5),
        ("app in (gpu", 5),
        ("a/b/c=d", 4),
        ("app=" + "x" * 64, 68),
        ("app=vllm\x00", 9),
    ],
)
def test_a_selector_that_it_does_not_take_is_told_at_the_start(selector: str, at: int) -> None:
    """And from where on it is not read."""
    with pytest.raises(BadSettings, match=rf"discovery\.kubernetes\.selector: .*from character {at} on"):
        loaded(selector=selector)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("labels", ["a b"], "names of labels wanted"),
        ("labels", ["a", "a"], "each once"),
        ("namespaces", ["*", "a"], "stands for all of them"),
        ("namespaces", ["a", "a"], "each once"),
        ("namespaces", ["A"], "names of namespaces wanted"),
        ("url", "http://10.0.0.1", "http:// to this machine"),
        ("url", "https://user@host", "https://HOST:PORT"),
        ("url", "host:6443", "https://HOST:PORT"),
        ("port", 0, "number"),
        ("name", "uid", "one of address, pod"),
        ("role", "encode", "one of prefill, decode, both"),
        ("replay_port", 5557, "further from events_port"),
    ],
)
def test_what_is_refused(key: str, value: object, rule: str) -> None:
    """With the rule that is broken."""
    with pytest.raises(BadSettings, match=f"discovery.kubernetes.{key}") as refused:
        loaded(**{key: value})
    assert rule in str(refused.value)


def test_what_is_refused_together() -> None:
    """Ports beyond the last one, a server without places to look in, a replica that subscribes to nobody."""
    with pytest.raises(BadSettings, match="beyond 65535"):
        loaded(ranks=8, events_port=65_530)
    with pytest.raises(BadSettings, match=r"needs discovery\.kubernetes\.events_port"):
        load(
            environment={"KVINDEXER_DISCOVERY__KUBERNETES__EVENTS_PORT": "null"},
            flags={"discovery.kubernetes.replay_port": 1},
        )
    with pytest.raises(BadSettings, match="say where its engines are"):
        loaded(selector="a", url="https://host:6443")
    with pytest.raises(BadSettings, match="only a replica with the role collect"):
        load(
            environment={},
            flags={"discovery.kubernetes.selector": "a", "server.roles": "lookup", "redis.url": "redis://x"},
        )


def test_where_the_server_is() -> None:
    """As a pod is told, unless it is set."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    six = {"KUBERNETES_SERVICE_HOST": "fd00::1"}

    assert Access(
        "https://10.96.0.1:6443", f"{ACCOUNT}/token", f"{ACCOUNT}/ca.crt", f"{ACCOUNT}/namespace"
    ) == access_of(Kubernetes(), pod)
    assert Access("https://[fd00::1]:443", "/t", "/c", None) == access_of(
        Kubernetes(namespaces=("a",), token_file="/t", ca_file="/c"),  # noqa: S106  a path
        six,
    )
    assert access_of(Kubernetes(), {}) is None
    assert Access("https://host", None, None, None) == access_of(Kubernetes(url="https://host/", namespaces=("a",)), {})


@pytest.mark.parametrize(("namespaces", "one"), [((), True), (("a",), True), (("a", "b"), False), (("*",), False)])
def test_where_names_of_pods_are_unique(namespaces: tuple[str, ...], one: bool) -> None:
    """In one namespace."""
    assert one is is_one_namespace(Kubernetes(namespaces=namespaces))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", (0,)),
        ("3", (3,)),
        ("2-4", (2, 3, 4)),
        ("", None),
        ("-1", None),
        ("1-", None),
        ("70000", None),
        ("4-2", None),
    ],
)
def test_ranks(text: str, ranks: tuple[int, ...] | None) -> None:
    """One, or from one to another."""
    assert ranks == ranks_of(text)


def test_names_of_labels() -> None:
    """With or without a prefix."""
    assert is_label_name("kvindexer.io/role")
    assert is_label_name("app")
    assert not is_label_name("a/b/c")
    assert not is_label_name("")


def test_files_that_cannot_be_read_are_told_at_the_start(tmp_path: Path) -> None:
    """Where pods are looked for; later it would look like a server that refuses."""
    (tmp_path / "token").write_text("x")
    flags = {
        "discovery.kubernetes.namespaces": ["a"],
        "discovery.kubernetes.token_file": str(tmp_path / "token"),
        "discovery.kubernetes.ca_file": str(tmp_path / "none"),
    }

    check_files(load(environment={}, flags=flags))
    with pytest.raises(BadSettings, match=r"discovery\.kubernetes\.ca_file: .*none: No such file"):
        check_files(load(environment={}, flags={**flags, "discovery.kubernetes.selector": "a"}))
