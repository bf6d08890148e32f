"""The conditions under which a run was made, and which core does what. Reads the system, changes only affinity."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

PACKAGES: Final = ("httptools", "msgspec", "numpy", "pyzmq", "uvicorn", "uvloop", "xxhash")
ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the service has to itself, which one loads it, and which one plays the engines."""

    service: int
    generator: int
    engines: int


def cores() -> Cores:
    """Three where the machine has them; on two, engines share the generator's; on one all share it."""
    usable = sorted(os.sched_getaffinity(0))
    service, generator = usable[0], usable[min(1, len(usable) - 1)]
    return Cores(service, generator, usable[min(2, len(usable) - 1)])


def pin(core: int | None) -> None:
    """Keep this process, and all it starts, on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def conditions() -> dict[str, object]:
    """What a reader must know of the machine and the software."""
    zmq_version = _zmq_version()
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES} | {"libzmq": zmq_version},
        "version": version("kvindexer"),
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def rss_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def cpu_s_of(pid: int) -> float:
    """CPU seconds of a process so far, in the kernel's ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _zmq_version() -> str:
    import zmq  # noqa: PLC0415  only for its number

    return zmq.zmq_version()


def _commit() -> str:
    """The commit, with `+` where the packages differ from it."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "indexer", "api", "schemas")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607  the user's git
    return done.stdout.strip()
