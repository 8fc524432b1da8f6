"""A program that runs two whole batches in one kind of session, and a third that fails, with passwords among
Kafka's settings. It leaves all results behind, and `results.json` last. See `sessions`.

What is planted on purpose, `PLANTED`, shows that a word can be found in each of those places.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.sessions import pages, whole_batch
from tests.world import NOW_MS, World
from tidegate.app import App
from tidegate.batch import Trigger, plan_batch
from tidegate.batch.compute import left_before
from tidegate.cli import cli
from tidegate.errors import OffsetsLost
from tidegate.spark.computation import Computation, PlannedBatch
from tidegate.spark.java import find_java, java_home
from tidegate.spark.session import open_session
from tidegate.spark.source import KafkaSource

PLANTED = "planted-83ac"
CASES = Path("include/pipelines/cases/rate_limited")
SIMULATED = Path("include/pipelines/rate_limited.yaml")


@dataclass(frozen=True)
class Given:
    """The arguments of the program: the broker, tidegate's settings for it, a folder, Spark's master, and
    the address of Spark's page.
    """

    servers: str
    kafka: str
    folder: str
    master: str
    page: str

    @classmethod
    def read(cls, path: str) -> Given:
        return cls(**json.loads(Path(path).read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def main(path: str) -> None:
    """Run the program from top to bottom."""
    given = Given.read(path)
    folder = Path(given.folder)
    spark = _opened(given.master)
    world = World(given.servers, folder / "world", lambda _: spark)
    world.app = App.from_environment(world.environment | {"TIDEGATE_KAFKA": given.kafka})
    results = whole_batch.compute(world, PLANTED)
    results["commands"] = _commands(given.master)
    results["ran in"] = _places(spark)
    errors = [_lost(world, spark, folder / "explained.txt"), _planted(spark, folder / "explained.txt")]
    (folder / "errors.txt").write_text("\n\n".join(errors))
    pages.save(given.page, folder / "pages")
    (folder / "results.json").write_text(json.dumps(results))
    spark.stop()


def _opened(master: str) -> SparkSession:
    """A session; that of a JVM of its own has Spark's page, which `open_session` leaves out."""
    if master.startswith("sc://"):
        return open_session(master)
    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1")
    return builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()


def _commands(master: str) -> list[list[Any]]:
    """`test` and `simulate`, as people call them, in the same kind of session."""
    records = [
        {"key": "v", "value": {"vehicleId": "v", "lat": n, "lon": 0}, "timestamp": n} for n in range(3)
    ]
    lines = "\n".join(json.dumps(record) for record in [*records, {"tick": 60_000}])
    runs = [
        (["test", str(CASES), "--cuts", "2", "--json"], ""),
        (["simulate", str(SIMULATED), "--input", "-"], lines),
    ]
    results = []
    for arguments, text in runs:
        result = CliRunner().invoke(cli, arguments, input=text, env={"TIDEGATE_SPARK_MASTER": master})
        results.append([result.exit_code, result.stdout])
    return results


def _places(spark: SparkSession) -> list[str]:
    """Return the folders from which Spark's Python workers import tidegate."""

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import tidegate

        del batches
        yield pa.RecordBatch.from_pydict({"place": [str(tidegate.__file__)]})

    rows = spark.range(0, 4, 1, 4).mapInArrow(place, "place string").collect()
    return sorted({row["place"] for row in rows})


def _lost(world: World, spark: SparkSession, explained: Path) -> str:
    """A batch whose records are deleted after it was planned, so that its tasks fail: what it says."""
    world.stock(1)
    plan = plan_batch(world.app, world.pipeline, Trigger("lost", NOW_MS)).plan
    assert plan is not None
    before = left_before(world.app, world.app.ledger, plan)
    records = KafkaSource(world.app.settings.kafka(), plan.ranges)
    computation = Computation(spark, PlannedBatch(plan, world.pipeline, world.app.lake(plan.stream), before))
    _explain(computation.frame(records, "explained"), explained)
    world.delete_records({(range_.topic, range_.partition): range_.end for range_ in plan.ranges})
    try:
        world.app.compute(plan, before, "lost", lambda _: spark)
    except OffsetsLost as error:
        return _chain(error)
    raise AssertionError("there were records")


def _planted(spark: SparkSession, explained: Path) -> str:
    """Run a computation that has the planted word in a plan, and in an error of a task, and return the
    error.
    """

    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise ValueError(batch.column("it").to_pylist())
        yield from ()

    frame = spark.range(1).selectExpr(f"concat('{PLANTED}', id) as it").mapInArrow(fail, "it string")
    _explain(frame, explained)
    try:
        frame.collect()
    except Exception as error:
        return _chain(error)
    raise AssertionError("it fails")


def _explain(frame: Any, file: Path) -> None:
    """Append all forms of a frame's plan to a file."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.explain(mode)
    with file.open("a") as out:
        out.write(text.getvalue())


def _chain(error: BaseException | None) -> str:
    """Return the messages of an error and its causes."""
    return "" if error is None else f"{error}\n{error!r}\n{_chain(error.__cause__ or error.__context__)}"


if __name__ == "__main__":
    main(*sys.argv[1:])
