"""The text of a new pipeline file."""

from __future__ import annotations

from tidegate.scaffold.draft import SINKS, Draft
from tidegate.scaffold.flow import flow
from tidegate.spec.names import quote

SCHEMA_FILE = "pipeline.schema.json"
"""The grammar for editors, beside the pipeline files."""

_STAGES = {
    "change": """\
    {select}
    reduce: latest
    # Only a value that differs from the key's last one goes out.
    emit: {{on: change, equal: exact}}
""",
    "threshold": """\
    {select}
    # All of a key's records wait, until there are enough of them or the first has waited for a minute.
    reduce: collect
    emit: {{on: threshold, count: 100, after: 60s}}
""",
    "time_limit": """\
    {select}
    reduce: latest
    # The newest value goes out, 30 seconds after the first that waits.
    emit: {{on: time_limit, after: 30s}}
""",
    "window_close": """\
    # Hours of the clock; late records have ten minutes more.
    window: {{tumbling: 1h, grace: 10m}}
    reduce: {{n: "count(*)"}}
    emit: {{on: window_close}}
""",
}
_TEXT = """\
# yaml-language-server: $schema={schema}
pipeline: {name}
generation: 1
schedule: {schedule}
source:
  topics: [{topic}]
  format: json
  columns: {columns}
{key}stages:
  - name: {name}
{stage}sinks:
  - {{kind: {sink}, {field}: {target}{with_key}}}
"""
_BOUNDS = """\
# A batch of which more cannot be used is told of in the log, or halts before anything of it is visible.
quarantine: {alert: {share: 1%}, stop: {share: 50%}}
"""
_QUALITY = """\
quality:
  suite: {name}
  on_failure: stop
"""


def pipeline_text(draft: Draft) -> str:
    """The file. Whether it has mistakes the grammar says: what a user has chosen stands in it as it is."""
    text = _TEXT.format(
        schema=SCHEMA_FILE,
        name=draft.name,
        schedule=flow(draft.schedule),
        topic=flow(draft.topic),
        columns=flow(draft.columns),
        key=f"  key: {flow(draft.key)}\n" if draft.key else "",
        stage=_STAGES[draft.way].format(select=f"select: {flow(_selection(draft))}"),
        sink=draft.sink,
        field=SINKS[draft.sink],
        target=flow(draft.target),
        with_key=", with_key: true" if draft.key else "",
    )
    return text + _BOUNDS + (_QUALITY.format(name=draft.name) if draft.has_suite else "")


def _selection(draft: Draft) -> dict[str, str]:
    """Each column as itself."""
    names = {name: column.name for name, column in draft.emitted.items()}
    return {name: column if column.isidentifier() else quote(column) for name, column in names.items()}
