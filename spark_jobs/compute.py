"""spark-submit entry of the compute step: `compute.py PIPELINE GENERATION RUN_ID`.

Settings, secrets among them, come from the environment. Exit codes: 0 done, 1 a retry can help, 2 it cannot,
3 another run holds the lease.
"""

from __future__ import annotations

import sys

from tidegate.app import LONG_DONE, App, planned_for
from tidegate.arrow import keep_pandas_out
from tidegate.engine.session import open_session
from tidegate.errors import TidegateError
from tidegate.protocol import compute_batch


def main(pipeline: str, generation: str, run_id: str) -> int:
    """Compute the run's batch; print what it came to."""
    keep_pandas_out()
    try:
        app = App.from_environment()
        plan = planned_for(app, pipeline, int(generation), run_id)
        if plan is None:
            print(f"tidegate: run {run_id}: {LONG_DONE}")
            return 0
        attempt = compute_batch(app, plan, run_id, lambda: open_session())
    except TidegateError as error:
        print(f"tidegate: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(f"tidegate: batch {plan.seq} computed as {attempt.name}: {dict(attempt.counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
