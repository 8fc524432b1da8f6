"""A pipeline file in which every field stands on a line of its own, and edits to it."""

from __future__ import annotations

from tidegate.errors import PipelineInvalid
from tidegate.spec import Pipeline, parse_pipeline

GOOD = """\
pipeline: levels
generation: 2
schedule: "*/5 * * * *"
source:
  topics: [stock]
  format: json
  columns: "storeId string, id bigint, quantity int, seenAt bigint, tags array<string>, weight double"
  key: [storeId, id]
  timestamp: record
  explode: null
  deduplicate: offset
  max_records: 5_000_000
  start: earliest
lookup: []
stages:
  - name: levels
    select:
      isAvailable: "quantity > 0"
      seen: "seenAt"
    reduce: latest
    emit:
      on: change
      equal: exact
    where: "isAvailable"
sinks:
  - kind: kafka
    topic: availability
    with_key: true
  - kind: table
    path: out/levels
    stage: levels
quality:
  suite: availability
  on_failure: stop
"""


def edited(*edits: tuple[str, str]) -> str:
    """GOOD with texts replaced, each of which must be there once."""
    text = GOOD
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def good(*edits: tuple[str, str]) -> Pipeline:
    """The pipeline of GOOD after the edits."""
    return parse_pipeline(edited(*edits), "p.yaml")


def problems(text: str, file: str = "p.yaml") -> list[tuple[int, str, str, str]]:
    """Line, field, message and fix of everything that is wrong; empty when nothing is."""
    try:
        parse_pipeline(text, file)
    except PipelineInvalid as error:
        return [(each.line, each.field, each.message, each.fix) for each in error.problems]
    return []
