"""Draws pipelines and computes them until the time is over: `python -m tests.fuzz --minutes 60`.

`--with lookups --with retractions` draws pipelines with the one and with the other by turns, and computes no
others; a seed gives the same pipeline with the same features only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.runs import FEATURES, differences
from tidegate.spark.session import open_session


def main() -> int:
    """Print each seed that fails, with its pipeline file. Return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--with", action="append", dest="features", choices=FEATURES, metavar="FEATURE")
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    end, seed, failed = time.monotonic() + options.minutes * 60, options.first, 0
    spark = open_session("local[2]")
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            feature = options.features[seed % len(options.features)] if options.features else None
            if wrong := _wrong(spark, seed, Path(folder), tally, feature):
                failed += 1
                print(
                    f"seed {seed}:", *wrong, (Path(folder) / "fuzzed.yaml").read_text(), sep="\n", flush=True
                )
        seed += 1
    spark.stop()
    print(f"{seed - options.first} seeds from {options.first} on: {dict(tally)}, {failed} failed")
    return 1 if failed else 0


def _wrong(spark: object, seed: int, folder: Path, tally: Counter[str], feature: str | None) -> list[str]:
    try:
        return list(differences(spark, seed, folder, tally, feature))  # type: ignore[arg-type]
    except Exception:
        return [traceback.format_exc()]


if __name__ == "__main__":
    sys.exit(main())
