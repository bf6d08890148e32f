"""Every limit of the way in, named, with its unit and what happens when it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexer.errors import SettingsError

KIB: Final = 1_024
MIB: Final = 1_024 * KIB

TICK_MAX_S: Final = 0.5
"""EventSink.alive promises a look at the connection at least this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """Limits of collect. What they bound: DESIGN.md section 6; sizes count payload bytes unless said otherwise."""

    bind_endpoints: tuple[str, ...] = ()
    """ZMQ addresses to bind for engines that connect to us (`--source-bind`); sources appear there by topic."""

    # --- sockets ---
    rcvhwm_messages: int = 128
    """Messages ZMQ queues per SUB socket. Few, so that a backlog waits in the engine, which queues 100,000, and so that
    input that stopped on a full queue soon goes on (decisions/0009)."""
    bound_rcvhwm_messages: int = 4_096
    """Messages ZMQ queues per engine that connects to us. There heartbeats share the connection with the messages, so
    its queue must not fill up while the loop is held (decisions/0010)."""
    read_ahead_after_s: float = 1.0
    """Of a socket with a backlog at least half the queue is taken this often, into the lane if need be: a connection
    whose input stands still learns nothing of its peer."""
    message_max_bytes: int = 16 * MIB
    """A longer message makes ZMQ cut the connection; it is made anew and the number is missing."""
    heartbeat_interval_s: float = 1.0
    """How often ZMQ pings an engine."""
    heartbeat_timeout_s: float = 3.0
    """Without an answer for so long, ZMQ cuts the connection: the monitor says so."""
    heartbeat_ttl_s: float = 6.0
    """For so long an engine keeps a connection on which it hears no heartbeats from us any more."""
    pause_s: float = 1.0
    """Two looks at a connection so far apart: this process was paused, and what stood before proves nothing now."""
    keepalive_idle_s: float = 5.0
    """After so long without a message TCP asks whether the engine's host still knows the connection."""
    keepalive_interval_s: float = 1.0
    """How often it asks again: a host that is back and knows nothing of the connection says so at once."""
    keepalive_attempts: int = 10
    """Without an answer to so many the connection is lost."""
    reconnect_min_s: float = 0.010
    """First wait before connecting again. ZMQ's 100 ms loses the first 18-30 batches of a restarted engine at 200/s."""
    reconnect_max_s: float = 1.0
    """Largest wait before connecting again; it doubles up to here."""
    reconnect_anew_min_s: float = 2.0
    """So long after a connection was lost it is made anew by us. ZMQ itself never comes back after a protocol error:
    a message over the limit, or another server on that port for a moment."""
    reconnect_anew_max_s: float = 30.0
    """Largest wait before that is done again; it doubles up to here, as each time cuts ZMQ's own attempt short."""
    connect_timeout_s: float = 3.0
    """For one attempt to connect, where packets vanish instead of being refused."""
    handshake_timeout_s: float = 5.0
    """For the ZMQ handshake, where something else listens on that port."""
    sources_max: int = 2_048
    """What the number of ZMQ sockets, I/O threads and open files is computed from. Beyond, no socket can be opened:
    the source gets a warning and another try later."""

    # --- lanes: live messages held back while a replay runs ---
    lane_bytes: int = 8 * MIB
    """Per source, or one message if that is longer. Full: what comes is dropped, `lane_overflows` counts, the source is
    suspect until the loss is healed or reported."""
    lanes_total_bytes: int = 256 * MIB
    """Over all sources of the process; same policy."""

    # --- standby: what engines say to whom nobody here but listens ---
    standby_source_bytes: int = 8 * MIB
    """Per source, or one message if that is longer. Full: its oldest batches go, counted; a takeover has a gap."""
    standby_total_bytes: int = 256 * MIB
    """Over all sources of the process. Spent: whoever receives drops its own oldest, or what came if it has none."""

    # --- the event loop's time ---
    slice_s: float = 0.001
    """Draining, over all sources together, gives the loop back to lookups after so long."""
    quantum_messages: int = 32
    """Messages taken from one source before time is looked at and the next source has its turn."""
    quantum_bytes: int = 64 * KIB
    """Bytes taken from one source likewise: about one batch of 512 blocks."""
    tick_s: float = 0.25
    """How often every connection is looked at."""

    # --- replay ---
    probe_interval_s: float = 5.0
    """An idle engine with a replay endpoint is asked so often whether something got lost; also how often at most."""
    replay_timeout_s: float = 10.0
    """Silence of a replay endpoint after which a conversation ends; live messages are held no longer than that."""
    replay_turn_s: float = 2.0
    """For so long an endpoint that was asked keeps one of the `replays_parallel` turns without having answered."""
    replay_overall_s: float = 60.0
    """For a whole recovery, all its conversations and its wait for a turn included. Then live goes on with a gap."""
    replay_attempts_max: int = 32
    """Conversations in one recovery. Only those that brought something are followed by another."""
    replays_per_minute: int = 60
    """Recoveries per source, as many of them at once. Beyond, the next one waits for its turn: messages are held."""
    replay_backoff_min_s: float = 5.0
    """Wait before an endpoint that failed is asked again; doubles with each failure."""
    replay_backoff_max_s: float = 300.0
    """Largest such wait."""
    replays_parallel: int = 8
    """Recoveries that receive at once, over the process; others wait for their turn."""
    probes_parallel: int = 32
    """Idle probes at once, over the process: they mostly carry one end marker. At 0.1 s each (an idle engine's longest
    wait) a thousand sources are still probed within probe_interval_s."""
    replay_rcvhwm_messages: int = 20_000
    """Messages ZMQ queues per replay. Large, because up to vLLM 0.32 an engine drops silently for a slow reader."""
    replay_useless_max_bytes: int = 256 * MIB
    """Replies in a row that bring nothing new, and no more of them for replay_timeout_s either: then a conversation
    counts as silent."""
    replay_inbox_bytes: int = 4 * MIB
    """Replayed batches taken from ZMQ but not applied yet, per conversation. Full: reading pauses."""

    overlap_s: float = 60.0
    """For so long all stamps of a replayed run are remembered: its batches may still come live, out of queues that
    were full. Heartbeats cut a connection that stands still for longer."""

    # --- judgement ---
    min_engine_restart_s: float = 5.0
    """No engine is back faster (promise P6): a jump forward after a shorter absence is a gap, not a restart."""
    silent_after_s: float = 30.0
    """A source that delivered nothing for so long after its start is remarked on."""

    # --- topics ---
    topic_max_bytes: int = 512
    """A longer topic names nobody; the message counts as malformed."""

    # --- bound sockets ---
    refused_topics_max: int = 4_096
    """Publishers remembered as refused (limit on sources, own subscriber); beyond, the oldest is asked about again."""
    refused_retry_s: float = 1.0
    """How often a refused publisher is proposed again at most."""

    def __post_init__(self) -> None:
        """Check the limits against each other."""
        if not 0 < self.tick_s <= TICK_MAX_S:
            raise SettingsError("events.tick_s", f"must be above 0 and at most {TICK_MAX_S}")
        if self.heartbeat_timeout_s < self.heartbeat_interval_s:
            raise SettingsError("events.heartbeat_timeout_s", "must not be below events.heartbeat_interval_s")
        if self.replay_overall_s < self.replay_timeout_s:
            raise SettingsError("events.replay_timeout_s", "must not be above events.replay_overall_s")
        if self.replay_timeout_s < self.replay_turn_s:
            raise SettingsError("events.replay_timeout_s", "must not be below events.replay_turn_s")
        if self.lanes_total_bytes < self.message_max_bytes:
            raise SettingsError("events.max_message_bytes", "must not be above events.lanes_total_bytes")
        if self.lanes_total_bytes < self.lane_bytes:
            raise SettingsError("events.lane_bytes", "must not be above events.lanes_total_bytes")
