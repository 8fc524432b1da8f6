"""spark-submit entry of the publish step of a large batch: `publish.py PIPELINE GENERATION RUN_ID`.

Settings, secrets among them, come from the environment. Exit codes: 0 done, 1 a retry can help, 2 it cannot,
3 another run holds the lease.
"""

from __future__ import annotations

import sys

from tidegate.app import LONG_DONE, App, planned_for
from tidegate.batch import publish_batch
from tidegate.batch_counts import published_text
from tidegate.errors import TidegateError
from tidegate.imports import keep_pandas_out
from tidegate.signals import raise_on_sigterm


def main(pipeline: str, generation: str, run_id: str) -> int:
    """Publish the run's batch, and print how many records each sink has. Returns the exit code."""
    raise_on_sigterm()
    keep_pandas_out()
    from tidegate.spark.session import open_session  # late: the line before acts on PySpark's imports

    try:
        app = App.from_environment()
        plan = planned_for(app, pipeline, int(generation), run_id)
        if plan is None:
            print(f"tidegate: run {run_id}: {LONG_DONE}")
            return 0
        published = publish_batch(app, plan, run_id, lambda _: open_session())
    except TidegateError as error:
        print(f"tidegate: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(f"tidegate: batch {plan.seq} is published: {published_text(published)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
