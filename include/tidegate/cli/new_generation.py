"""`tidegate generation new` and `restate`: copy a pipeline's file for another generation, and fill that with
batches of the one in charge.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tidegate.cli.options import as_json, instant, pipeline_names
from tidegate.cli.output import out, show, write_texts
from tidegate.numerals import counted
from tidegate.yaml.folder import path_of

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.generations import Recomputation, RepeatedBatches, Restatement
    from tidegate.ledger import Stream
    from tidegate.model.pipeline import Pipeline

_GENERATION = re.compile(r"^generation:[ \t]*[^\s#]+", re.MULTILINE)
_PIPELINE = re.compile(r"^pipeline:.*$", re.MULTILINE)


def is_begun(app: App, stream: Stream) -> bool:
    """Return whether a generation has a batch, or is the one in charge."""
    from tidegate.generations import has_begun

    charge = app.ledger.charge(stream.pipeline)
    return charge.generation == stream.generation or has_begun(app.ledger, stream)


def named_file(app: App, pipeline: str, number: int | None) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of a file, or of its copy for the generation in which a call goes on.

    Raises SettingsInvalid if there is no such generation.
    """
    from tidegate.generations import require_generation
    from tidegate.ledger import Stream

    loaded, path = app.pipeline(pipeline), path_of(pipeline, app.settings.pipelines)
    if number is None:
        return path, loaded
    require_generation(app, Stream(loaded.pipeline, number))
    return copy_with(path, loaded, number)


def require_file_in_charge(app: App, pipeline: Pipeline, origin: Stream, number: int | None) -> None:
    """Raise UsageError if a file is that of another generation than `origin`, which has begun: its text is
    not that of the batches that are repeated.

    Args:
        number: the generation in which a call goes on, whose own file may be named as well.
    """
    from tidegate.app import stream_of
    from tidegate.yaml.load import load_pipelines

    own = stream_of(pipeline)
    if own == origin or own.generation == number or not is_begun(app, own):
        return
    files = {stream_of(loaded): name for name, loaded in load_pipelines(app.settings.pipelines)[0].items()}
    fix = (
        f"Name its file: {files[origin]}."
        if origin in files
        else f"Write its file: generation: {origin.generation}."
    )
    raise click.UsageError(
        f"This is the file of generation {own.generation} of {own.pipeline}, and generation "
        f"{origin.generation} is in charge. {fix}"
    )


def copied(app: App, path: Path, pipeline: Pipeline) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of a copy with the next generation's number. The file is not
    written yet. Raises UsageError if there is such a file.
    """
    from tidegate.ledger import Stream

    taken = [stream.generation for stream in app.ledger.streams() if stream.pipeline == pipeline.pipeline]
    number = max(taken) + 1
    # the number of a dropped generation is never used again
    while app.ledger.is_dropped(Stream(pipeline.pipeline, number)):
        number += 1
    copy, loaded = copy_with(path, pipeline, number)
    if copy.exists():
        raise click.UsageError(f"{copy} already exists: use its name instead of {path.stem}, or remove it.")
    return copy, loaded


def copy_with(path: Path, pipeline: Pipeline, number: int) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of the copy for a generation: its file, if there is one."""
    from tidegate.yaml.load import load_pipeline, parse_pipeline

    if pipeline.generation == number:
        return path, pipeline
    copy = path.with_name(f"{pipeline.pipeline}_g{number}.yaml")
    if copy.exists():
        return copy, load_pipeline(copy)
    line = f"generation: {number}"
    text, replaced = _GENERATION.subn(line, pipeline.text, count=1)
    if not replaced:
        text = _PIPELINE.sub(lambda line_before: f"{line_before[0]}\n{line}", text, count=1)
    return copy, parse_pipeline(text, str(copy))


number_option = click.option(
    "--generation", "number", type=int, help="Go on in this generation, which a call has made."
)


@click.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@click.option("--from-batch", type=int, help="Begin with the state after this batch of the one in charge.")
@click.option("--as-of", type=instant, help="Begin with the state as it was at this instant (UTC).")
@click.option(
    "--keep-state",
    is_flag=True,
    help="Let edited stages go on from their state: edits count from the next batch on.",
)
@number_option
@click.option(
    "--yes", is_flag=True, help="Do it; without it, --from-batch and --as-of only show what would be done."
)
@as_json
def new(
    pipeline: str,
    from_batch: int | None,
    as_of: datetime | None,
    keep_state: bool,
    number: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Make another generation of PIPELINE, which withholds what it decides until it is promoted.

    PIPELINE's own file is copied to one with the next number; or name a file that has another number already.
    It begins empty, and reads the source from its start. With --from-batch it begins where the generation in
    charge was after that batch. What an edit of the file has changed is computed again for all batches up to
    there: new and changed stages from the outboxes of the stages before them, where those are unchanged, and
    a new sink gets the outboxes of its stage. The command shows it first.
    """
    if from_batch is not None and as_of is not None:
        raise click.UsageError("--from-batch and --as-of name one state each: give one of them.")
    from tidegate.app import App
    from tidegate.generations import is_edited, origin_of, plan_recomputation, require_batch, require_fitting

    begins_empty = from_batch is None and as_of is None
    if number is not None and (keep_state or begins_empty):
        raise click.UsageError(
            "--generation goes on with a computation: give --from-batch, and no --keep-state."
        )
    app = App.from_environment() if yes or begins_empty else App.for_reading()
    path, loaded = named_file(app, pipeline, number)
    origin = origin_of(app, loaded)
    if begins_empty:
        _begin(app, pipeline, origin, None, as_json)
        return
    require_file_in_charge(app, loaded, origin, number)
    seq = _batch_at(app, origin, as_of) if as_of is not None else from_batch
    assert seq is not None, "one of them is given"
    require_batch(app, origin, seq)
    if number is None and (keep_state or not is_edited(app, origin, seq, loaded)):
        require_fitting(app, loaded, origin, seq)
        if yes:
            _begin(app, pipeline, origin, seq, as_json)
        else:
            show([{"state after batch": seq, "of": str(origin)}], as_json, "It would begin with")
            _nothing_done(as_json)
        return
    recomputation = plan_recomputation(app, loaded, origin, seq)
    if yes:
        _fill(app, (path, loaded), number, recomputation, "", as_json)
        return
    show(_work_rows(recomputation), as_json, f"What would be done for batches 1 to {seq} of {origin}")
    _nothing_done(as_json)


def _nothing_done(as_json: bool) -> None:
    if not as_json:
        out.print("Nothing was done: with --yes it is, and what the generation emits is withheld.")


def _batch_at(app: App, stream: Stream, instant: datetime) -> int:
    seq = app.ledger.head_at(stream, instant.replace(tzinfo=timezone.utc).timestamp())
    if not seq:
        raise click.UsageError(f"{stream} had no batch yet at {instant:%Y-%m-%d %H:%M:%S} UTC.")
    return seq


def _begin(app: App, pipeline: str, origin: Stream, seq: int | None, as_json: bool) -> None:
    """Make a generation that begins empty, or with the state after a batch."""
    from tidegate.generations import begin_from

    path, loaded = _opened(app, path_of(pipeline, app.settings.pipelines), app.pipeline(pipeline))
    if seq is not None:
        begin_from(app, loaded, origin, seq, f"new__{uuid4()}")
    if not path.exists():
        write_texts({path: loaded.text})
    begins = f"with the state after batch {seq} of {origin}" if seq is not None else "at the source's start"
    if as_json:
        row = {"pipeline": loaded.pipeline, "generation": loaded.generation, "file": str(path)}
        show([row | {"in charge": origin.generation, "from batch": seq}], True)
        return
    out.print(
        f"Generation {loaded.generation} of {loaded.pipeline} stands beside {origin.generation}, which "
        f"stays in charge. It begins {begins}, and withholds what it would send. Edit {path}, then run it: "
        "its DAG has the file's name.",
        markup=False,
    )


def _opened(app: App, path: Path, loaded: Pipeline) -> tuple[Path, Pipeline]:
    """Open the generation of a pipeline file, or of a copy of it if that one has batches. Return the file."""
    from tidegate.app import stream_of
    from tidegate.generations import open_generation

    if is_begun(app, stream_of(loaded)):
        path, loaded = copied(app, path, loaded)
    is_beside = app.ledger.charge(loaded.pipeline).generation is not None
    # it is beside another one if an earlier call crashed before it had filled the generation
    if not is_beside or stream_of(loaded) not in app.ledger.streams():
        open_generation(app, loaded)
    return path, loaded


def _work_rows(recomputation: Recomputation) -> list[dict[str, Any]]:
    stages = [
        {
            "of": f"stage {work.stage}",
            "is": "reused" if work.is_reused else "computed",
            "from": "state and outboxes" if work.is_reused else f"records of {work.input}",
            "why": work.why or "unchanged",
        }
        for work in recomputation.stages
    ]
    sinks = [
        {"of": f"sink {sink}", "is": "reused", "from": "what it has", "why": "it gets nothing twice"}
        for sink in recomputation.inherited
    ]
    return stages + sinks


@click.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@click.option("--from-batch", "first", type=int, required=True, help="The first batch to compute again.")
@click.option("--to-batch", "last", type=int, required=True, help="The last one that a mistake has spoiled.")
@number_option
@click.option("--yes", is_flag=True, help="Compute them; without it, they are only shown.")
@as_json
def restate(pipeline: str, first: int, last: int, number: int | None, yes: bool, as_json: bool) -> None:
    """Compute batches of PIPELINE again, in another generation beside the one in charge.

    The batches from --from-batch on get the records and the clocks that they had, the pipeline file as it is
    now, and up to --to-batch lookups as they are now. Nothing goes out: look at the difference, and promote
    the generation with --net, which sends nothing else. After a kill, or after more batches, go on with
    --generation.
    """
    from tidegate.app import App
    from tidegate.generations import origin_of, plan_restatement

    app = App.from_environment() if yes else App.for_reading()
    path, loaded = named_file(app, pipeline, number)
    origin = origin_of(app, loaded)
    require_file_in_charge(app, loaded, origin, number)
    restatement = plan_restatement(app, loaded, origin, first, last)
    if not yes:
        show(_restated_rows(restatement), as_json, f"Batches of {origin} that would be computed again")
        if not as_json:
            out.print("Nothing was done: with --yes they are computed, and what they emit is withheld.")
        return
    _fill(app, (path, loaded), number, restatement, " --net", as_json)


def _restated_rows(restatement: Restatement) -> list[dict[str, Any]]:
    return [
        {
            "batch": plan.seq,
            "clock": datetime.fromtimestamp(plan.clock_ms / 1000, timezone.utc).isoformat(),
            "offsets": plan.span,
            "lookups": "as they are now" if plan.seq <= restatement.last else "as they were",
        }
        for plan in restatement.plans
    ]


def _fill(
    app: App,
    file: tuple[Path, Pipeline],
    number: int | None,
    batches: RepeatedBatches,
    promotion: str,
    as_json: bool,
) -> None:
    """Make a generation, or go on with generation `number`, and repeat batches in it. Its file is written
    last: its DAG must not read on in between.
    """
    from tidegate.app import stream_of
    from tidegate.cli.master import own_session
    from tidegate.cli.output import steps_shown
    from tidegate.generations import repeat
    from tidegate.quality.beside import CheckBeside

    path, loaded = file
    if number is None:
        path, loaded = _opened(app, path, loaded)
        if not as_json:
            out.print(f"If this is interrupted, continue with --generation {loaded.generation}.")
    spark = own_session(app, stream_of(loaded))
    with CheckBeside() as quality, steps_shown(quiet=as_json) as progress, spark:
        repeat(app, loaded, batches, spark.open, progress, quality.check)
    if not path.exists():
        write_texts({path: loaded.text})
    if as_json:
        show([{"pipeline": loaded.pipeline, "generation": loaded.generation, "file": str(path)}], True)
        return
    command = f"tidegate generation %s {loaded.pipeline} {loaded.generation}"
    repeated = counted(len(batches.plans), "batch")
    out.print(
        f"Generation {loaded.generation} of {loaded.pipeline} has computed {repeated} "
        f"again; its file is {path}. What changes: {command % 'diff'}. To send it: {command % 'promote'}"
        f"{promotion}.",
        markup=False,
    )
