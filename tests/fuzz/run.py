"""One target for some seconds: `python -m tests.fuzz.run TARGET --seconds 60 [--seed N]`. `make fuzz` runs them all.

Coverage leads the mutations; they begin with what real engines sent (tests/golden/payloads). Input that breaks a
promise is written to build/fuzz/, and given back as `--input FILE`.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["indexer", "api", "schemas"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS, seeds

ROOT = Path(__file__).parents[2]
INPUT_BYTES_MAX = 4_096
MEMORY_MIB = 1_024
"""Of the whole process; more is a finding."""
INPUT_S = 10
"""For one input; longer is a finding."""


def main() -> None:
    """Run; ends with the status of the fuzzer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0 takes one and prints it")
    parser.add_argument("--input", type=Path, help="try this file only")
    told = parser.parse_args()
    if told.input is not None:
        TARGETS[told.target](told.input.read_bytes())
        return
    seed = told.seed or secrets.randbelow(2**31 - 1) + 1
    print(f"fuzz: {told.target} for {told.seconds} s, seed {seed}", flush=True)
    recorded = [bytes.fromhex(path.read_text()) for path in sorted((ROOT / "tests/golden/payloads").glob("*.hex"))]
    found = ROOT / "build" / "fuzz"
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for i, each in enumerate(seeds(told.target, recorded)):
            (Path(corpus) / f"seed-{i}").write_bytes(each)
        options = {
            "max_total_time": told.seconds,
            "seed": seed,
            "max_len": INPUT_BYTES_MAX,
            "rss_limit_mb": MEMORY_MIB,
            "timeout": INPUT_S,
            "artifact_prefix": f"{found}/{told.target}-",
            "print_final_stats": 1,
            "verbosity": 0,
        }
        atheris.Setup(
            [sys.argv[0], corpus, *(f"-{name}={value}" for name, value in options.items())], TARGETS[told.target]
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
