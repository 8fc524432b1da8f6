"""`python -m tests.simulator --seeds 10000`: run seeds, count what there was, trace one that fails."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulator.app import simulated
from tests.simulator.many import WORLDS, Sum, simulate_many
from tests.simulator.world import trace_lines


def main() -> int:
    """Exit code 1 when a seed failed."""
    options = _options()
    if options.trace is not None:
        return show(options.world, options.trace)
    began, total = time.monotonic(), Sum()
    seeds = range(options.start, options.start + options.seeds)
    for total in simulate_many(seeds, options.processes, options.world):
        _tell(total, time.monotonic() - began, end="\r")
    _tell(total, time.monotonic() - began, end="\n")
    for name, number in sorted(total.counts.items()):
        share = total.seeds_with[name] / total.counts["seeds"]
        print(f"{number:13,} {name:46} in {share:6.1%} of the seeds")
    for seed, violation in sorted(total.failed.items())[:20]:
        print(f"seed {seed}: {violation}")
    if total.failed:
        return show(options.world, min(total.failed))
    return 0


def show(world: str, seed: int) -> int:
    """Print what happened in a seed, one effect a line."""
    with simulated():
        result = WORLDS[world](seed)
    print("\n".join(trace_lines(result.trace)))
    print(f"seed {seed}: {result.violation or 'all held'}")
    return 1 if result.violation else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, metavar="N", help="how many (default 10,000)")
    parser.add_argument(
        "--from", type=int, default=0, dest="start", metavar="M", help="the first (default 0)"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core"
    )
    parser.add_argument("--world", choices=WORLDS, default="runs", help="the kind of worlds (default runs)")
    parser.add_argument("--trace", type=int, metavar="SEED", help="replay one seed and show all its effects")
    return parser.parse_args()


def _tell(total: Sum, seconds: float, end: str) -> None:
    seeds = total.counts["seeds"]
    line = f"{seeds:,} seeds in {seconds:,.0f} s ({seeds / seconds:,.0f}/s), {len(total.failed)} failed"
    print(line, end=end, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
