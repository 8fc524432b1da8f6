"""A batch that is computed, and that its suite will stop; nothing has looked at it yet."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.seeded import Seeded
from tidegate.kernel.keys import key_hash
from tidegate.ledger import Attempt
from tidegate.model.planned import with_suites
from tidegate.storage import attempt_name
from tidegate.storage.datafile import RowWriter
from tidegate.storage.manifest import manifest_of
from tidegate.storage.schema import outbox_schema
from tidegate.yaml.load import load_pipeline

NAME, SEQ = "prices", 13
ALERTS = '''\
"""The user's own: a notifier of Airflow's that writes into a file."""

import os
from pathlib import Path

from airflow.sdk import BaseNotifier


class Pager(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text, **others):
        super().__init__(**others)
        self.text = text

    def notify(self, context):
        Path(os.environ["TIDEGATE_HOME"], "alert.txt").write_text(f"{context['ti'].task_id}: {self.text}")
'''
PIPELINE = f"""\
pipeline: {NAME}
source:
  topics: [prices]
  format: json
  columns: "storeId string, id bigint, price double, currency string"
  key: [storeId, id]
stages:
  - {{name: prices, select: {{price: price, currency: currency}}, emit: {{on: change}}}}
sinks: [{{kind: table}}]
quality: {{suite: prices}}
airflow:
  on_quality:
    notifier: "alerts:Pager"
    with: {{text: "{{{{ dag.dag_id }}}} {{{{ run_id }}}}: {{{{ cause }}}}"}}
"""
SUITE = {
    "name": "prices",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "price", "min_value": 0, "max_value": 10_000},
            "severity": "critical",
        },
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": "price"},
            "severity": "critical",
        },
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "currency", "value_set": ["EUR", "USD"]},
            "severity": "warning",
        },
        {
            "type": "expect_column_mean_to_be_between",
            "kwargs": {"column": "price", "max_value": 25},
            "severity": "info",
        },
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 100}},
    ],
}
ROWS = 400


def trusted_modules(home: Path) -> dict[str, str]:
    """Writes the user's module; the environment in which it is found."""
    folder = home / "modules"
    folder.mkdir()
    (folder / "alerts.py").write_text(ALERTS)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {"TIDEGATE_PYTHON_MODULES": "alerts", "PYTHONPATH": path}


def add_failing_batch(seeded: Seeded) -> None:
    """A pipeline with a day of batches, and the one after them computed: three prices are not right, and one
    currency. A run of its id goes on with it."""
    file = seeded.home / "pipelines" / f"{NAME}.yaml"
    file.write_text(PIPELINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PYTHON_MODULES", "alerts")
        pipeline = with_suites(load_pipeline(file), {"prices": json.dumps(SUITE)}.get)
    seeded.day(pipeline, SEQ - 1)
    lease = seeded.lease(pipeline)
    plan = seeded.plan(pipeline, SEQ)
    lease.add_plan(plan)
    lake, name = seeded.app.lake(plan.stream), attempt_name(SEQ, SEQ)
    writer = RowWriter(lake.store, f"{lake.files('outbox', NAME, name)}/1.parquet", "outbox", NAME)
    with writer:
        for batch in _outbox().to_batches():
            writer.write(batch)
    assert writer.file is not None
    manifest = seeded.app.write_manifest(plan.stream, manifest_of(name, SEQ, [writer.file]))
    counts = {"": {"read": plan.span}, NAME: {"used": plan.span, "emitted": ROWS}}
    lease.add_attempt(Attempt(plan.stream, SEQ, manifest, counts))
    lease.release()


def _outbox() -> pa.Table:
    value = pa.struct([("price", pa.float64()), ("currency", pa.string())])
    keys = pa.struct([("storeId", pa.string()), ("id", pa.int64())])
    return pa.Table.from_pylist([_emission(number) for number in range(ROWS)], outbox_schema(value, keys, {}))


def _emission(number: int) -> dict[str, object]:
    columns = {"storeId": f"s{number % 5 + 1}", "id": 1000 + number}
    key = json.dumps(columns, separators=(",", ":"))
    price = -1.0 if number in (17, 200, 331) else 10 + number % 90 / 4
    return {
        "hash": key_hash(key),
        "key": key,
        "ordinal": 0,
        "reason": "changed",
        "value": {"price": price, "currency": "EURO" if number == 42 else "EUR"},
        "key_columns": columns,
        "timestamp": 1_767_225_600_000 + number,
        "at": 1_767_225_600_000 + number,
        "source": f"prices/0/{number}",
        "seq": SEQ,
    }
