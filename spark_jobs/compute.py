"""spark-submit entry of the compute step: `compute.py PIPELINE GENERATION RUN_ID`.

Settings, secrets among them, come from the environment. Exit codes: 0 done, 1 a retry can help, 2 it cannot,
3 another run holds the lease.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError
from tidegate.imports import keep_pandas_out
from tidegate.signals import raise_on_sigterm

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.ledger import Plan


def main(pipeline: str, generation: str, run_id: str) -> int:
    """Compute the run's batch, and print its counts. Returns the exit code."""
    raise_on_sigterm()
    keep_pandas_out()
    from tidegate.spark.session import open_session  # late: the line before acts on PySpark's imports

    try:
        with ThreadPoolExecutor(max_workers=1) as beside:
            planned_batch = beside.submit(_planned, pipeline, int(generation), run_id)
            session = open_session()
        app, plan = planned_batch.result()
        from tidegate.app import LONG_DONE
        from tidegate.batch import compute_batch
        from tidegate.batch_counts import computed_text

        if plan is None:
            print(f"tidegate: run {run_id}: {LONG_DONE}")
            return 0
        attempt = compute_batch(app, plan, run_id, lambda _: session)
    except TidegateError as error:
        print(f"tidegate: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(f"tidegate: batch {plan.seq} computed as {attempt.name}: {computed_text(attempt.counts)}")
    return 0


def _planned(pipeline: str, generation: int, run_id: str) -> tuple[App, Plan | None]:
    """Return the run's batch, or None if it is already done."""
    # Imported in this thread, because Spark's start, beside it, takes as long.
    import tidegate.batch  # noqa: F401
    from tidegate.app import App, planned_for

    app = App.from_environment()
    return app, planned_for(app, pipeline, generation, run_id)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
