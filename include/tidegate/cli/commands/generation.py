"""`tidegate generation`: two generations of a pipeline side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tidegate.cli.options import as_json, instant, pipeline_names
from tidegate.cli.output import out, show

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.generations import GenerationDifference, Promoted, Restatement, SinkDifference
    from tidegate.ledger import Stream
    from tidegate.model.pipeline import Pipeline

_GENERATION = re.compile(r"^generation:[^#\n]*", re.MULTILINE)
_PIPELINE = re.compile(r"^pipeline:.*$", re.MULTILINE)

number = click.argument("number", metavar="GENERATION", type=int)
net = click.option(
    "--net", is_flag=True, help="Send only what differs from what consumers have, as one batch of its own."
)


@click.group()
def generation() -> None:
    """Try another generation of a pipeline beside the running one, and let it take its place.

    One generation of a pipeline is in charge: what it decides goes out. The others read, compute and commit
    as it does, and withhold what they would send.
    """


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@click.option("--from-batch", type=int, help="Begin with the state after this batch of the one in charge.")
@click.option("--as-of", type=instant, help="Begin with the state as it was at this instant (UTC).")
@as_json
def new(pipeline: str, from_batch: int | None, as_of: datetime | None, as_json: bool) -> None:
    """Make another generation of PIPELINE, which withholds what it decides until it is promoted.

    PIPELINE's own file is copied to one with the next number, to be edited; or name a file that has another
    number already. It begins empty, and reads the source from its start; or with the state of the generation
    in charge, which the file has to fit, and where that was then.
    """
    if from_batch is not None and as_of is not None:
        raise click.UsageError("--from-batch and --as-of name one state each: give one of them.")
    from tidegate.app import App, stream_of
    from tidegate.generations import begin_from, open_generation
    from tidegate.ledger import Stream

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


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@click.option("--from-batch", "first", type=int, required=True, help="The first batch to compute again.")
@click.option("--to-batch", "last", type=int, required=True, help="The last one that a mistake has spoiled.")
@click.option("--generation", "number", type=int, help="Go on in this generation, which a call has made.")
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
    from tidegate.generations import open_generation, plan_restatement, require_generation
    from tidegate.ledger import Stream

    app = App.from_environment() if yes else App.for_reading()
    loaded, path = app.pipeline(pipeline), _path_of(app, pipeline)
    in_charge = app.ledger.charge(loaded.pipeline).generation or loaded.generation
    origin = Stream(loaded.pipeline, in_charge)
    restatement = plan_restatement(app, origin, first, last)
    if not yes:
        show(_restated_rows(restatement), as_json, f"Batches of {origin} that would be computed again")
        if not as_json:
            out.print("Nothing was done: with --yes they are computed, and what they emit is withheld.")
        return
    if number is None:
        path, loaded = _copied(app, path, loaded)
        open_generation(app, loaded)
        if not as_json:
            out.print(f"If this is interrupted, continue with --generation {loaded.generation}.")
    else:
        require_generation(app, Stream(loaded.pipeline, number))
        path, loaded = _copy_with(path, loaded, number)
    _restate(app, loaded, restatement, quiet=as_json)
    if not path.exists():  # only now: its DAG must not read on in between
        path.write_text(loaded.text)
    if as_json:
        show([{"pipeline": loaded.pipeline, "generation": loaded.generation, "file": str(path)}], True)
        return
    command = f"tidegate generation %s {loaded.pipeline} {loaded.generation}"
    out.print(
        f"Generation {loaded.generation} of {loaded.pipeline} has computed {len(restatement.plans)} batches "
        f"again; its file is {path}. What changes: {command % 'diff'}. To send only that: "
        f"{command % 'promote'} --net.",
        markup=False,
    )


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


def _restate(app: App, pipeline: Pipeline, restatement: Restatement, quiet: bool) -> None:
    from tidegate.app import stream_of
    from tidegate.cli.master import spark_master
    from tidegate.cli.output import steps_shown
    from tidegate.generations import restate
    from tidegate.quality.beside import CheckBeside
    from tidegate.spark.session import OwnSession

    settings, name = app.settings, app.session_name(stream_of(pipeline))
    spark = OwnSession(spark_master(settings), settings.spark_memory, name)
    with CheckBeside() as quality, steps_shown(quiet=quiet) as progress, spark:
        restate(app, pipeline, restatement, spark.open, progress, quality.check)


def _is_empty(app: App, stream: Stream) -> bool:
    """Return whether a generation was created, but has no batch yet."""
    charge, head = app.ledger.charge(stream.pipeline), app.ledger.head(stream)
    return charge.withholds(stream.generation) and not head.seq and app.ledger.open_plan(stream) is None


def _batch_at(app: App, stream: Stream, instant: datetime) -> int:
    seq = app.ledger.head_at(stream, instant.replace(tzinfo=timezone.utc).timestamp())
    if not seq:
        raise click.UsageError(f"{stream} had no batch yet at {instant:%Y-%m-%d %H:%M:%S} UTC.")
    return seq


def _copied(app: App, path: Path, pipeline: Pipeline) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of a copy with the next generation's number. The file is not
    written yet.
    """
    from tidegate.ledger import Stream

    taken = [stream.generation for stream in app.ledger.streams() if stream.pipeline == pipeline.pipeline]
    number = max(taken) + 1
    # the number of a dropped generation is never used again
    while app.ledger.is_dropped(Stream(pipeline.pipeline, number)):
        number += 1
    copy, copied = _copy_with(path, pipeline, number)
    if copy.exists():
        raise click.UsageError(f"{copy} already exists: use its name instead of {path.stem}, or remove it.")
    return copy, copied


def _copy_with(path: Path, pipeline: Pipeline, number: int) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of the copy for a generation: its file, if there is one."""
    from tidegate.yaml.load import load_pipeline, parse_pipeline

    copy = path.with_name(f"{pipeline.pipeline}_g{number}.yaml")
    if copy.exists():
        return copy, load_pipeline(copy)
    line = f"generation: {number}"
    text, replaced = _GENERATION.subn(line, pipeline.text, count=1)
    if not replaced:
        text = _PIPELINE.sub(lambda line_before: f"{line_before[0]}\n{line}", text, count=1)
    return copy, parse_pipeline(text, str(copy))


def _path_of(app: App, pipeline: str) -> Path:
    return (
        Path(pipeline)
        if pipeline.endswith((".yaml", ".yml"))
        else app.settings.pipelines / f"{pipeline}.yaml"
    )


@generation.command(name="list")
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@as_json
def list_(pipeline: str | None, as_json: bool) -> None:
    """Show the generations of every pipeline (or PIPELINE): which is in charge, and what of each goes out."""
    from tidegate.app import App, stream_of
    from tidegate.yaml.load import load_pipelines

    app = App.for_reading()
    files = {stream_of(loaded): name for name, loaded in load_pipelines(app.settings.pipelines)[0].items()}
    name = _name_of(app, pipeline) if pipeline is not None else None
    streams = [stream for stream in app.ledger.streams() if name in (None, stream.pipeline)]
    show([_row(app, stream, files) for stream in streams], as_json, empty="No batch was planned yet.")


def _row(app: App, stream: Stream, files: dict[Stream, str]) -> dict[str, Any]:
    from tidegate.ledger import Stream

    head = app.ledger.head(stream)
    charge = app.ledger.charge(stream.pipeline)
    in_charge = app.ledger.head(Stream(stream.pipeline, charge.generation)) if charge.generation else head
    return {
        "pipeline": stream.pipeline,
        "generation": stream.generation,
        "role": charge.role(stream.generation),
        "batch": head.seq,
        "goes out": charge.published_batches(stream.generation),
        "offsets behind": sum(head.unread_of(in_charge).values()),
        "file": files.get(stream),
    }


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@number
@click.option("--against", type=int, help="Another generation; default: the one in charge.")
@click.option("--examples", default=10, show_default=True, help="Keys to show of each sink.")
@as_json
def diff(pipeline: str, number: int, against: int | None, examples: int, as_json: bool) -> None:
    """Show what consumers would have of GENERATION of PIPELINE, and what they have of the one in charge.

    Both outputs are folded by key up to the last batches at which both have read the same.
    """
    from tidegate.app import App
    from tidegate.generations import compare_generations, require_generation
    from tidegate.ledger import Stream

    app = App.for_reading()
    new = Stream(_name_of(app, pipeline), number)
    old = Stream(new.pipeline, against or app.ledger.charge(new.pipeline).generation or 0)
    for stream in (old, new):
        require_generation(app, stream)
    comparison = compare_generations(app, old, new)
    if as_json:
        print(json.dumps(_difference(comparison, examples), ensure_ascii=False))
        return
    title = f"{comparison.sides}: what both have read"
    show([_summary(sink) for sink in comparison.sinks], False, title)
    for sink in comparison.sinks:
        show(sink.examples(examples), False, sink.sink, empty=f"{sink.sink}: no difference.")


def _difference(comparison: GenerationDifference, examples: int) -> dict[str, Any]:
    sinks = [
        {
            **{name: value for name, value in _summary(sink).items() if not name.startswith("emissions")},
            "emissions": {"old": dict(sink.emissions[0]), "new": dict(sink.emissions[1])},
            "examples": sink.examples(examples),
        }
        for sink in comparison.sinks
    ]
    batches = {"old": comparison.old_seq, "new": comparison.new_seq}
    return {
        "old": comparison.old.generation,
        "new": comparison.new.generation,
        "batches": batches,
        "sinks": sinks,
    }


def _summary(sink: SinkDifference) -> dict[str, Any]:
    old, new = sink.emissions
    return {
        "sink": sink.sink,
        **sink.counts,
        "emissions, old": _by_reason(old),
        "emissions, new": _by_reason(new),
    }


def _by_reason(emissions: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in emissions.items()) or "none"


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@number
@net
@click.option(
    "--approved-by", metavar="NAME", help="Who has approved it; needed where a file has `approve_promotion`."
)
@as_json
def promote(pipeline: str, number: int, net: bool, approved_by: str | None, as_json: bool) -> None:
    """Put GENERATION of PIPELINE in charge: what it has withheld goes out, from its start, then the rest.

    Safe to run again, which also finishes one that was killed.
    """
    from tidegate import generations
    from tidegate.app import App
    from tidegate.generations import Approval
    from tidegate.ledger import Stream

    app = App.from_environment()
    stream = Stream(_name_of(app, pipeline), number)
    approval = Approval(approved_by) if approved_by else None
    _print_result(
        generations.promote(app, stream, _run_id("promote"), is_net=net, approval=approval), as_json
    )


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@net
@as_json
def rollback(pipeline: str, net: bool, as_json: bool) -> None:
    """Put the generation of PIPELINE in charge again that was before: it goes on where it stopped."""
    from tidegate import generations
    from tidegate.app import App

    app = App.from_environment()
    _print_result(generations.rollback(app, _name_of(app, pipeline), _run_id("rollback"), net), as_json)


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@number
@click.confirmation_option(prompt="Its state and its outboxes will be gone for good. Go on?")
def drop(pipeline: str, number: int) -> None:
    """Give up GENERATION of PIPELINE, which is not in charge. What it has published stays."""
    from tidegate.app import App
    from tidegate.generations import drop_generation
    from tidegate.ledger import Stream

    app = App.from_environment()
    stream = Stream(_name_of(app, pipeline), number)
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


def _name_of(app: App, pipeline: str) -> str:
    """Return the pipeline's name, from the ledger or from its file. `pipeline` can be the name or a file."""
    if pipeline in {stream.pipeline for stream in app.ledger.streams()}:
        return pipeline
    return app.pipeline(pipeline).pipeline


def _run_id(what: str) -> str:
    return f"{what}__{uuid4().hex[:8]}"
