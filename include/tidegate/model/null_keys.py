"""Check what reads a source that keeps records without a key: they pass one stage, and go to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.model.mistakes import mistake
from tidegate.model.quality import AnyCheck
from tidegate.model.source import Source
from tidegate.model.stage import Stage
from tidegate.sinks.model import SinkModel

_FIX = "Leave it out, or let records without a key go into quarantine (`null_key: quarantine`)."


def keeps_null_keys(stage: Stage, sources: Iterable[Source]) -> bool:
    """Return whether records without a key reach a stage.

    Args:
        sources: The sources whose records it reads.
    """
    return stage.key is None and stage.reads_source and any(source.keeps_null_keys for source in sources)


def check_stages(stages: Sequence[Stage], keyless: Sequence[Stage]) -> None:
    """Raise a mistake if records without a key reach a stage that compares or folds the records of a key, or
    the stages after it.

    Args:
        keyless: The stages that they reach.
    """
    for stage in keyless:
        unfit = {
            "`reduce`": not stage.reduce.newest_only,
            f"`emit: {{on: {stage.emit.on}}}`": stage.emit.on != "update",
            "`window`": stage.window is not None,
            "`where`": stage.where is not None,
            "`ttl`": stage.ttl is not None,
            "`unchanged`": stage.unchanged is not None,
        }
        field = next((field for field, is_unfit in unfit.items() if is_unfit), None)
        if field is not None:
            what = (
                f"`{stage.name}` gets records without a key, which are not the record of one thing: {field}"
            )
            raise mistake(f"{what} does not go with them", _FIX)
        reader = next((reader for reader in stages if stage.name in reader.inputs), None)
        if reader is not None:
            what = f"`{reader.name}` would get emissions without a key from `{stage.name}`"
            raise mistake(what, "Let it read the source, or let such records go into quarantine.")


def check_quality(checks: Iterable[AnyCheck], stages: Sequence[Stage], keyless: Sequence[Stage]) -> None:
    """Raise a mistake if a check puts values of a stage without keys into quarantine."""
    names = [stage.name for stage in keyless]
    refusing = [check for check in checks if check.on_failure == "quarantine"]
    if stages and any((check.stage or stages[-1].name) in names for check in refusing):
        raise mistake("a value without a key cannot be refused", "Use `on_failure: stop` or `warn`.")


def check_sinks(sinks: Iterable[SinkModel], stages: Sequence[Stage], keyless: Sequence[Stage]) -> None:
    """Raise a mistake if emissions without a key go to a sink that needs keys."""
    names = [stage.name for stage in keyless]
    for sink in sinks:
        if not sink.takes_null_keys and stages and (sink.stage or stages[-1].name) in names:
            fix = "Use a Kafka sink, `null_key: quarantine`, or `key: [p]` with `metadata: {p: partition}`."
            raise mistake(f"`{sink.name}` has no place for emissions without a key", fix)
