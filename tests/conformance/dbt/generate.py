"""Write `histories.json`: what dbt's snapshots make of a table that changes, step by step.

dbt needs other versions of some packages than tidegate, so it has an environment of its own:

    python -m venv /tmp/dbt && /tmp/dbt/bin/pip install "dbt-core==1.9.*" "dbt-duckdb==1.9.*"
    /tmp/dbt/bin/python tests/conformance/dbt/generate.py   # two minutes
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import duckdb
from dbt.cli.main import dbtRunner

STEPS, KEYS, CASES = 8, 6, 4
PROJECT = """\
name: history
version: "1.0"
profile: history
flags: {send_anonymous_usage_stats: false}
"""
PROFILE = "history: {target: dev, outputs: {dev: {type: duckdb, path: FILE, threads: 1}}}"
SNAPSHOT = """\
{% snapshot versions %}
{{ config(target_schema="main", unique_key="key", strategy="timestamp", updated_at="changed_at",
          hard_deletes="new_record") }}
select * from main.source
{% endsnapshot %}
"""
# The instant at which dbt notices a deletion: that of the step, and not of this machine.
CLOCK = "{% macro duckdb__snapshot_get_time() %}make_timestamp({{ var('now') }}000000){% endmacro %}"
Change = tuple[str, "int | None", int]


def drawn(seed: int) -> list[list[Change]]:
    """Return steps of changes (key, value, second); a deletion has no value, and the time of its step."""
    chance, steps = random.Random(seed), []
    existing: dict[str, int] = {}
    for step in range(1, STEPS + 1):
        changes: list[Change] = []
        for key in chance.sample([f"k{number}" for number in range(KEYS)], chance.randrange(1, KEYS)):
            if key in existing and chance.random() < 0.3:
                changes.append((key, None, step * 100))
                del existing[key]
            else:
                existing[key] = existing.get(key, 0) + chance.randrange(1, 9)
                changes.append((key, existing[key], step * 100 - chance.randrange(1, 90)))
        steps.append(sorted(changes, key=lambda change: change[2]))
    return steps


def snapshots(steps: list[list[Change]], folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the snapshot after all steps, each of which is a run of `dbt snapshot`."""
    database = folder / "history.duckdb"
    (folder / "snapshots").mkdir()
    (folder / "macros").mkdir()
    (folder / "dbt_project.yml").write_text(PROJECT)
    (folder / "profiles.yml").write_text(PROFILE.replace("FILE", str(database)))
    (folder / "snapshots" / "versions.sql").write_text(SNAPSHOT)
    (folder / "macros" / "clock.sql").write_text(CLOCK)
    with duckdb.connect(str(database)) as source:
        source.execute("CREATE TABLE main.source (key VARCHAR PRIMARY KEY, n BIGINT, changed_at TIMESTAMP)")
    for number, changes in enumerate(steps, start=1):
        with duckdb.connect(str(database)) as source:
            for key, value, at in changes:
                source.execute("DELETE FROM main.source WHERE key = ?", [key])
                if value is not None:
                    row = [key, value, at * 1_000_000]
                    source.execute("INSERT INTO main.source VALUES (?, ?, make_timestamp(?))", row)
        options = ["--project-dir", str(folder), "--profiles-dir", str(folder), "--quiet"]
        result = dbtRunner().invoke(["snapshot", *options, "--vars", json.dumps({"now": number * 100})])
        assert result.success, result.exception
    with duckdb.connect(str(database)) as source:
        rows = source.execute(
            "SELECT key, n, epoch(dbt_valid_from)::BIGINT, epoch(dbt_valid_to)::BIGINT, "
            "dbt_is_deleted = 'True' FROM main.versions ORDER BY key, dbt_valid_from, dbt_valid_to NULLS LAST"
        ).fetchall()
    names = ("key", "n", "valid_from", "valid_to", "deleted")
    return [dict(zip(names, row, strict=True)) for row in rows]


def main() -> None:
    """Write the cases."""
    cases = []
    for seed in range(CASES):
        steps = drawn(seed)
        with tempfile.TemporaryDirectory() as folder:
            cases.append({"steps": steps, "versions": snapshots(steps, Path(folder))})
    text = ",\n".join(json.dumps(case) for case in cases)
    Path(__file__).with_name("histories.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
