"""`tidegate generation`: two generations of a pipeline side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tidegate.cli.new_generation import new, restate
from tidegate.cli.options import as_json, pipeline_named, pipeline_names
from tidegate.cli.output import out, show, show_object
from tidegate.numerals import counted

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.generations import GenerationDifference, Promoted, SinkDifference
    from tidegate.ledger import Stream

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


generation.add_command(new)
generation.add_command(restate)


@generation.command(name="list")
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@as_json
def list_(pipeline: str | None, as_json: bool) -> None:
    """Show the generations of every pipeline (or PIPELINE): which is in charge, and what of each goes out."""
    from tidegate.app import App, stream_of
    from tidegate.yaml.load import load_pipelines

    app = App.for_reading()
    files = {stream_of(loaded): name for name, loaded in load_pipelines(app.settings.pipelines)[0].items()}
    name = pipeline_named(app, pipeline) if pipeline is not None else None
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
    new = Stream(pipeline_named(app, pipeline), number)
    old = Stream(new.pipeline, against or app.ledger.charge(new.pipeline).generation or 0)
    for stream in (old, new):
        require_generation(app, stream)
    comparison = compare_generations(app, old, new)
    if as_json:
        show_object(_difference(comparison, examples))
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
    stream = Stream(pipeline_named(app, pipeline), number)
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
    _print_result(generations.rollback(app, pipeline_named(app, pipeline), _run_id("rollback"), net), as_json)


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
    stream = Stream(pipeline_named(app, pipeline), number)
    files = drop_generation(app, stream, _run_id("drop"))
    out.print(
        f"{stream} is dropped, with {counted(files, 'file')}. Remove its pipeline file, if it still has one."
    )


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


def _run_id(what: str) -> str:
    return f"{what}__{uuid4().hex[:8]}"
