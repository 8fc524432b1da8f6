"""`tidegate explain`: show why a key was emitted, or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.events import event_object, event_rows
from tidegate.cli.options import as_json, generation, open_stream, pipeline_argument
from tidegate.cli.output import out, show, steps_shown
from tidegate.errors import SettingsInvalid

if TYPE_CHECKING:
    from tidegate.inspect.explain import Explanation
    from tidegate.ledger import OffsetRange


@click.command()
@pipeline_argument
@click.argument("key")
@click.option("--batch", type=int, help="This batch; default: the newest.")
@click.option(
    "--offsets", metavar="TOPIC/PARTITION/START-END", help="The batches that read these; END excluded."
)
@click.option("--stage", help="Only this stage; default: each one.")
@generation
@as_json
def explain(
    pipeline: str,
    key: str,
    batch: int | None,
    offsets: str | None,
    stage: str | None,
    generation: int | None,
    as_json: bool,
) -> None:
    """Tell why KEY of PIPELINE was emitted, or not: what came in, what was known, and what went out.

    The batch is decided again from what it read and what it started from; nothing is written.
    """
    if batch is not None and offsets is not None:
        raise SettingsInvalid("--batch and --offsets both choose batches", "Give only one of them.")
    from tidegate.cli.master import spark_master
    from tidegate.inspect.explain import explain as explain_key
    from tidegate.spark.session import open_session

    app, stream = open_stream(pipeline, generation)
    settings, master = app.settings, spark_master(app.settings)
    with steps_shown(quiet=as_json) as progress:
        progress("deciding again")
        explanations = explain_key(
            app,
            stream,
            key,
            lambda records: open_session(master, settings.spark_memory, records=records),
            batch,
            _parse_offsets(offsets),
            stage,
        )
    if as_json:
        show([_as_object(explanation) for explanation in explanations], True)
        return
    for explanation in explanations:
        _show(explanation)


def _parse_offsets(text: str | None) -> OffsetRange | None:
    """Parse `topic/0/17-20` (20 excluded) or `topic/0/17`."""
    from tidegate.ledger import OffsetRange

    if text is None:
        return None
    topic, _, rest = text.partition("/")
    partition, _, span = rest.partition("/")
    first, dash, end = span.partition("-")
    numbers = (partition, first, end) if dash else (partition, first)
    if not topic or not all(number.isdecimal() for number in numbers):
        raise SettingsInvalid(
            f"--offsets {text} cannot be read", "Write TOPIC/PARTITION/START-END, such as stock/0/17-20."
        )
    start = int(first)
    offsets = OffsetRange(topic, int(partition), start, int(end) if dash else start + 1)
    if not offsets.span > 0:
        raise SettingsInvalid(
            f"--offsets {text} holds no offset", "END is excluded: write 17-18, or 17, for one."
        )
    return offsets


def _as_object(explanation: Explanation) -> dict[str, Any]:
    return {
        "batch": explanation.plan.seq,
        "key": explanation.key,
        "changed_in": list(explanation.changed),
        "events": [event_object(event) for event in explanation.events],
    }


def _show(explanation: Explanation) -> None:
    plan = explanation.plan
    title = f"Batch {plan.seq} of {plan.stream}, key {explanation.key}"
    show(
        event_rows(explanation.events),
        False,
        title,
        f"{title}: no record of it came in, and nothing went out.",
    )
    if explanation.changed:
        out.print(f"Batches that changed its state: {_some(explanation.changed)}.", highlight=False)


def _some(batches: Sequence[int]) -> str:
    newest = ", ".join(map(str, batches[-10:]))
    return newest if len(batches) <= 10 else f"{newest}, and {len(batches) - 10} before them"
