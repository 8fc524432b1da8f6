"""The commands `generation new`, `list`, `promote`, `rollback` and `drop`."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from tidegate import generations
from tidegate.app import App, stream_of
from tidegate.cli.show import out, show
from tidegate.generations import Approval, Promoted, begin_from, drop_generation, open_generation
from tidegate.ledger import Charge, Stream
from tidegate.spec import Pipeline, load_pipelines, parse_pipeline

_GENERATION = re.compile(r"^generation:[^#\n]*", re.MULTILINE)
_PIPELINE = re.compile(r"^pipeline:.*$", re.MULTILINE)


def new(pipeline: str, from_batch: int | None, as_of: datetime | None, as_json: bool) -> None:
    """Create another generation of PIPELINE, which withholds its output until it is promoted.

    Args:
        from_batch: Begin with the state after this batch of the generation in charge; None begins at the
            source's start.
        as_of: Begin with the state at this instant, instead of `from_batch`.
    """
    app = App.from_environment()
    loaded, path = app.pipeline(pipeline), _path_of(app, pipeline)
    if stream_of(loaded) in app.ledger.streams() and not _is_empty(app, stream_of(loaded)):
        path, loaded = _copied(app, path, loaded)
    # it exists if an earlier call crashed before it had filled the generation
    if stream_of(loaded) not in app.ledger.streams():
        open_generation(app, loaded)
    in_charge = Stream(loaded.pipeline, app.ledger.charge(loaded.pipeline).generation or 0)
    seq = _batch_at(app, in_charge, as_of) if as_of is not None else from_batch
    if seq is not None:
        begin_from(app, loaded, in_charge, seq, _run_id("new"))
    if not path.exists():
        path.write_text(loaded.text)
    begins = (
        f"with the state after batch {seq} of {in_charge}" if seq is not None else "at the source's start"
    )
    if as_json:
        row = {"pipeline": loaded.pipeline, "generation": loaded.generation, "file": str(path)}
        show([row | {"in charge": in_charge.generation, "from batch": seq}], True)
        return
    out.print(
        f"Generation {loaded.generation} of {loaded.pipeline} stands beside {in_charge.generation}, which "
        f"stays in charge. It begins {begins}, and withholds what it would send. Edit {path}, then run it: "
        "its DAG has the file's name.",
        markup=False,
    )


def _is_empty(app: App, stream: Stream) -> bool:
    """Return whether a generation was created, but has no batch yet."""
    charge, head = app.ledger.charge(stream.pipeline), app.ledger.head(stream)
    return charge.withholds(stream.generation) and not head.seq and app.ledger.open_plan(stream) is None


def _batch_at(app: App, stream: Stream, instant: datetime) -> int:
    seq = app.ledger.head_at(stream, instant.replace(tzinfo=timezone.utc).timestamp())
    if not seq:
        raise click.UsageError(f"{stream} had no batch yet at {instant:%Y-%m-%d %H:%M:%S} UTC.")
    return seq


def show_all(pipeline: str | None, as_json: bool) -> None:
    """Show the generations of every pipeline (or PIPELINE), which of them is in charge, and which batches
    it publishes.
    """
    app = App.for_reading()
    files = {stream_of(loaded): name for name, loaded in load_pipelines(app.settings.pipelines)[0].items()}
    name = name_of(app, pipeline) if pipeline is not None else None
    streams = [stream for stream in app.ledger.streams() if name in (None, stream.pipeline)]
    show([_row(app, stream, files) for stream in streams], as_json, empty="No batch was planned yet.")


def promote(pipeline: str, generation: int, is_net: bool, approved_by: str | None, as_json: bool) -> None:
    """Put GENERATION of PIPELINE in charge.

    Args:
        is_net: First send consumers the net differences to the generation in charge.
        approved_by: The person who approves the promotion, if the pipeline requires one.
    """
    app = App.from_environment()
    stream = Stream(name_of(app, pipeline), generation)
    approval = Approval(approved_by) if approved_by else None
    _print_result(
        generations.promote(app, stream, _run_id("promote"), is_net=is_net, approval=approval), as_json
    )


def rollback(pipeline: str, is_net: bool, as_json: bool) -> None:
    """Put the previous generation of PIPELINE in charge again.

    Args:
        is_net: First send consumers the net differences.
    """
    app = App.from_environment()
    _print_result(generations.rollback(app, name_of(app, pipeline), _run_id("rollback"), is_net), as_json)


def drop(pipeline: str, generation: int) -> None:
    """Drop GENERATION of PIPELINE with its state. It must not be in charge."""
    app = App.from_environment()
    stream = Stream(name_of(app, pipeline), generation)
    files = drop_generation(app, stream, _run_id("drop"))
    out.print(f"{stream} is dropped, with {files} files. Remove its pipeline file, if it still has one.")


def _print_result(promoted: Promoted, as_json: bool) -> None:
    promotion = promoted.promotion
    if as_json:
        show([vars(promotion) | {"is_new": promoted.is_new}], True)
        return
    was = "is in charge" if promoted.is_new else "was in charge already"
    net = ", the first of which has what changes" if promotion.is_net else ""
    out.print(
        f"{promotion.stream} {was}: its batches from {promotion.first_seq} on go out{net}.", markup=False
    )


def _row(app: App, stream: Stream, files: dict[Stream, str]) -> dict[str, Any]:
    head = app.ledger.head(stream)
    charge = app.ledger.charge(stream.pipeline)
    in_charge = app.ledger.head(Stream(stream.pipeline, charge.generation)) if charge.generation else head
    return {
        "pipeline": stream.pipeline,
        "generation": stream.generation,
        "role": _role(charge, stream.generation),
        "batch": head.seq,
        "goes out": _batches_out(charge, stream.generation),
        "offsets behind": sum(head.unread_of(in_charge).values()),
        "file": files.get(stream),
    }


def _role(charge: Charge, generation: int) -> str:
    if charge.generation is None:
        return "publishes"
    return "in charge" if charge.generation == generation else "withholds"


def _batches_out(charge: Charge, generation: int) -> str:
    """Return the batches that a generation publishes, such as `1-7, 12-`."""
    if not charge.promotions:
        return "all"
    spans = [span for span in charge.spans() if span.generation == generation and span.seqs]
    return ", ".join(map(str, spans)) or "none"


def _copied(app: App, path: Path, pipeline: Pipeline) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of a copy with the next generation's number. The file is not
    written yet.
    """
    taken = [stream.generation for stream in app.ledger.streams() if stream.pipeline == pipeline.pipeline]
    number = max(taken) + 1
    # the number of a dropped generation is never used again
    while app.ledger.is_dropped(Stream(pipeline.pipeline, number)):
        number += 1
    line = f"generation: {number}"
    text, replaced = _GENERATION.subn(line, pipeline.text, count=1)
    if not replaced:
        text = _PIPELINE.sub(lambda line_before: f"{line_before[0]}\n{line}", text, count=1)
    copy = path.with_name(f"{pipeline.pipeline}_g{number}.yaml")
    if copy.exists():
        raise click.UsageError(f"{copy} already exists: use its name instead of {path.stem}, or remove it.")
    return copy, parse_pipeline(text, str(copy))


def _path_of(app: App, pipeline: str) -> Path:
    return (
        Path(pipeline)
        if pipeline.endswith((".yaml", ".yml"))
        else app.settings.pipelines / f"{pipeline}.yaml"
    )


def name_of(app: App, pipeline: str) -> str:
    """Return the pipeline's name, from the ledger or from its file. `pipeline` can be the name or a file."""
    if pipeline in {stream.pipeline for stream in app.ledger.streams()}:
        return pipeline
    return app.pipeline(pipeline).pipeline


def _run_id(what: str) -> str:
    return f"{what}__{uuid4().hex[:8]}"
