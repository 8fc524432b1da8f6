"""Which stages of a pipeline file decide exactly what they decided in earlier batches.

Two pipelines are compared in their compiled form. A stage is unchanged if it, the stages and the sources
before it, and what sinks and checks make it keep are the same: then it has the same state and emissions of
the same records. An edit that state survives (`storage.compatibility`) is still a change here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tidegate.model import names
from tidegate.model.compiled import compile_pipeline
from tidegate.model.kernel_stages import keeps_time, kernel_stage
from tidegate.model.pipeline import Pipeline

Document = Mapping[str, Any]
_WHICH_RECORDS = ("connection", "selection", "_matched", "max_records", "start")
"""Fields of the source that choose its records: a batch that is repeated has the records that it had."""
_SCHEMAS = ("_schemas", "_key_schemas")


def changed_stages(before: Pipeline, after: Pipeline) -> dict[str, str]:
    """Return the stages of `after` that may decide otherwise than in `before`, each with the reason.

    Example: `{"totals": "it is new"}`
    """
    documents = _document(before), _document(after)
    of_batch = next(_batch_changes(before, after, *documents), None)
    of_sources = _source_changes(*documents)
    changed: dict[str, str] = {}
    for stage in after.stages:
        of_source = of_batch or next((of_sources[name] for name in stage.sources if name in of_sources), None)
        if of_source is not None:
            changed[stage.name] = of_source
        elif edited := [name for name in stage.inputs if name in changed]:
            changed[stage.name] = f"it reads {edited[0]}, which is changed"
        elif (why := _stage_change(before, after, documents, stage.name)) is not None:
            changed[stage.name] = why
    return changed


def same_outputs(before: Pipeline, after: Pipeline) -> tuple[str, ...]:
    """Return the names of the outputs of `after` that also `before` has, of the stage of the same name."""
    old, new = _outputs(before), _outputs(after)
    return tuple(name for name, written in new.items() if old.get(name) == written)


def inherited_outputs(before: Pipeline, after: Pipeline, stages: Collection[str]) -> tuple[str, ...]:
    """Return the outputs that get the same in both pipelines of what `stages` decide, and nothing else.

    An output that each generation has of its own gets all of it anew.
    """
    same = same_outputs(before, after)
    # Dead letters are of all stages.
    of_all = {stage.name for stage in after.stages} <= set(stages)
    outputs = [sink.name for sink in after.sinks if after.stage_of(sink).name in stages]
    outputs += [after.dead_letters.name] if after.dead_letters is not None and of_all else []
    per_generation = {sink.name for sink in after.outputs if sink.is_per_generation}
    return tuple(name for name in outputs if name in same and name not in per_generation)


def _outputs(pipeline: Pipeline) -> dict[str, tuple[str, Any]]:
    """Return name -> the stage and the compiled form of each output."""
    document = _document(pipeline)
    written = [*document["sinks"], document["quarantine"]]
    return {
        output.name: (pipeline.stage_of(output).name, part)
        for output, part in zip(pipeline.outputs, written, strict=False)
    }


def _document(pipeline: Pipeline) -> Document:
    document: Document = json.loads(compile_pipeline(pipeline))["pipeline"]["of"]
    return document


def _batch_changes(before: Pipeline, after: Pipeline, old: Document, new: Document) -> Iterator[str]:
    """Yield why records of any source may come to the stages otherwise."""
    if old["lookup"] != new["lookup"]:
        yield "`lookup` is changed"
    if not keeps_time(before) and keeps_time(after):
        yield "the batches so far noted no stream time, which the edited file needs"
    if after.sends_recorded and not before.sends_recorded:
        yield "outboxes so far do not have the timestamps that Kafka has of records, which a sink sends now"
    if keeps_time(before) and not keeps_time(after):
        yield "the batches so far noted stream time, which the edited file does not need"


def _source_changes(old: Document, new: Document) -> dict[str, str]:
    """Return the sources whose records may come to the stages otherwise, each with the reason."""
    before, after = _sources(old), _sources(new)
    changed = {}
    for name, source in after.items():
        path = names.SOURCE if name == names.SOURCE else f"sources.{name}"
        if name not in before:
            changed[name] = f"`{path}` is new"
        elif fields := [field for field, value in source.items() if before[name].get(field) != value]:
            changed[name] = f"`{path}.{fields[0].strip('_')}` is changed"
    return changed


def _sources(document: Document) -> dict[str, dict[str, Any]]:
    """Return the parts of each source that decide what its records are."""
    single = document["single_source"]
    sources = {names.SOURCE: single} if single else document["named_sources"]["of"]
    return {name: _decoding(source["of"]) for name, source in sources.items()}


def _decoding(source: Document) -> dict[str, Any]:
    decoding = {name: part for name, part in source.items() if name not in _WHICH_RECORDS}
    # The schemas of writers are found by their ids in records: more of them change nothing.
    return decoding | {name: source[name]["of"]["reader"] for name in _SCHEMAS}


def _stage_change(
    before: Pipeline, after: Pipeline, documents: tuple[Document, Document], name: str
) -> str | None:
    """Return why a stage whose input is the same may decide otherwise; None if it does not."""
    old, new = ({part["of"]["name"]: part["of"] for part in document["stages"]} for document in documents)
    if name not in old:
        return "it is new"
    fields = [field for field, value in new[name].items() if old[name].get(field) != value]
    if fields:
        return f"`{fields[0].strip('_')}` is changed"
    stages = (
        (pipeline, next(stage for stage in pipeline.stages if stage.name == name))
        for pipeline in (before, after)
    )
    # What only sinks and checks ask of it: the size of an envelope, and expectations that refuse values.
    decides = [
        (replace(kernel_stage(*pair), tells_before=False), pair[0].takes_deletions(pair[1]))
        for pair in stages
    ]
    return None if decides[0] == decides[1] else "a sink or a check changes what it decides"
