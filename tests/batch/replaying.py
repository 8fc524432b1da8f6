"""A replay of all that is open, corrected, by itself: `python -m tests.batch.replaying RUN_ID`.

The settings are those of the environment, and so are the failpoints at which it dies.
"""

from __future__ import annotations

import sys
import time

from tidegate import quarantine
from tidegate.app import App, stream_of
from tidegate.batch import Trigger, run_batch
from tidegate.quarantine import ReplayedRecords
from tidegate.settings import OWN_SPARK
from tidegate.spark.session import OwnSession

EDIT = "json_merge_patch(value, {'quantity': CAST(value->>'quantity' AS BIGINT)})"


def main(run_id: str) -> None:
    """Run a replay, always the same, however often it is begun."""
    app = App.from_environment()
    pipeline = app.pipeline("availability")
    stream, edit = stream_of(pipeline), quarantine.RecordEdit(EDIT)
    request = ReplayedRecords(
        lambda: map(edit.apply, quarantine.iter_open(app, stream, quarantine.QuarantineFilter())), "ada"
    )
    now_ms = time.time_ns() // 1_000_000
    began = time.monotonic()
    with OwnSession(app.settings.spark_master or OWN_SPARK, app.settings.spark_memory, "replaying") as spark:
        run_batch(
            app,
            pipeline,
            Trigger(run_id, now_ms, now_ms=now_ms, replay=request),
            spark.open,
            lambda step: print(f"{time.monotonic() - began:6.1f} s {step}", flush=True),
            spark.end,
        )
    print(f"{time.monotonic() - began:6.1f} s done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
