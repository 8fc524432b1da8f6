"""The text of a new pipeline file."""

from __future__ import annotations

from tidegate.scaffold.draft import Draft
from tidegate.scaffold.flow import flow
from tidegate.sinks.registry import MODELS
from tidegate.spec.names import quote

SCHEMA_FILE = "pipeline.schema.json"
"""The name of the JSON Schema of the grammar, beside the pipeline files: editors complete and check by it."""

_STAGES = {
    "change": """\
    {select}
    reduce: latest
    # The stage emits a value only if it differs from the last emitted value of its key.
    emit: {{on: change, equal: exact}}
""",
    "threshold": """\
    {select}
    # The records of a key wait until there are 100 of them, or until the first has waited for a minute.
    reduce: collect
    emit: {{on: threshold, count: 100, after: 60s}}
""",
    "time_limit": """\
    {select}
    reduce: latest
    # The stage emits the newest value, 30 seconds after the first value that waits.
    emit: {{on: time_limit, after: 30s}}
""",
    "window_close": """\
    # Each window is one hour. Late records count until ten minutes after its end.
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
# If more of a batch's records than `alert` cannot be used, tidegate alerts. If more than `stop`, the batch
# halts before anything of it is visible.
quarantine: {alert: {share: 1%}, stop: {share: 50%}}
"""
_QUALITY = """\
quality:
  suite: {name}
  on_failure: stop
"""


def pipeline_text(draft: Draft) -> str:
    """Return the text of the pipeline file.

    The choices are written as they are, without a check: `parse_pipeline` reports their mistakes with line
    and fix.
    """
    sink = MODELS[draft.sink]
    text = _TEXT.format(
        schema=SCHEMA_FILE,
        name=draft.name,
        schedule=flow(draft.schedule),
        topic=flow(draft.topic),
        columns=flow(draft.columns),
        key=f"  key: {flow(draft.key)}\n" if draft.key else "",
        stage=_STAGES[draft.way].format(select=f"select: {flow(_selection(draft))}"),
        sink=draft.sink,
        field=sink.target_field,
        target=flow(draft.target or sink.new_target(draft.name)),
        with_key=", with_key: true" if draft.key else "",
    )
    return text + _BOUNDS + (_QUALITY.format(name=draft.name) if draft.has_suite else "")


def _selection(draft: Draft) -> dict[str, str]:
    """Return the `select` that emits each column unchanged, quoted if its name is not an identifier."""
    names = {name: column.name for name, column in draft.emitted.items()}
    return {name: column if column.isidentifier() else quote(column) for name, column in names.items()}
