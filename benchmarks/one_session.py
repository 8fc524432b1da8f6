"""What `tidegate run` does, again and again in one process and one Spark session: its own, or the one that a
Spark Connect server keeps for the stream.

Each line of the input names a pipeline, of which one batch is run; the answer is what the command prints.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from tidegate import inspect
from tidegate.app import App, stream_of
from tidegate.batch import Trigger, run_batch
from tidegate.cli.batch import report_object
from tidegate.settings import OWN_SPARK
from tidegate.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _open(master: str, memory: str | None, name: str, _: int) -> SparkSession:
    """Open a session for batches of any size."""
    return open_session(master, memory, name=name)


def main() -> None:
    app = App.from_environment()
    settings = app.settings
    for number, line in enumerate(sys.stdin):
        pipeline = app.pipeline(line.strip())
        trigger = Trigger(f"turn-{number}", int(time.time() * 1000))
        name = app.session_name(stream_of(pipeline))
        opener = partial(_open, settings.spark_master or OWN_SPARK, settings.spark_memory, name)
        outcome = run_batch(app, pipeline, trigger, opener)
        assert outcome.plan is not None, outcome.note
        report = inspect.batch_report(app.ledger, outcome.plan.stream, outcome.plan.seq)
        assert report is not None, "a batch that went through has one"
        print(json.dumps(report_object(report)), flush=True)


if __name__ == "__main__":
    main()
