"""Topic bytes → the publisher's pod and model, as far as the topic says so. Pure; any bytes at all are accepted.

vLLM sends the configured topic as it is, by default nothing. Deployments that share a socket write `kv@<pod>@<model>`
into it (the convention of llm-d); whatever else stands there is taken as the publisher's name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from indexer.model import Descriptor

_PREFIX: Final = "kv@"


class Topic(NamedTuple):
    """Who a topic says is speaking. `pod` is None only for the empty topic, which names nobody."""

    pod: str | None
    model: str | None


def parse_topic(raw: bytes) -> Topic:
    r"""Read a topic frame.

    `kv@POD@MODEL` is split at its first two `@`: a pod (`ip:port`, `[ipv6]:port`, any name) holds none, a model may
    (`org/model@revision`). Bytes that are no UTF-8 become `\xNN`, so equal bytes always give equal names.
    """
    text = raw.decode("utf-8", "backslashreplace")
    if not text:
        return Topic(None, None)
    if text.startswith(_PREFIX):
        pod, at, model = text.removeprefix(_PREFIX).partition("@")
        if pod and at:
            return Topic(pod, model or None)
    return Topic(text, None)


def mismatches(topic: Topic, source: Descriptor) -> list[str]:
    """What the topic contradicts in a source's registration: `pod`, `model`, both, or nothing where the two agree.

    The registration wins; this is only for reporting. A topic that names the host alone agrees with `host:port`.
    """
    fields = []
    if topic.pod is not None and topic.pod not in _names(source):
        fields.append("pod")
    if topic.model is not None and source.model is not None and topic.model != source.model:
        fields.append("model")
    return fields


def _names(source: Descriptor) -> set[str]:
    """Every string under which a topic may rightly name this source."""
    full = {source.pod, *source.aliases}
    if source.address is not None:
        full.add(source.address)
    return full | {name.rpartition(":")[0].strip("[]") for name in full if ":" in name}
