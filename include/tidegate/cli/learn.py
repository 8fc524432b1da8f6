"""The command `quality learn`: propose a suite from history."""

from __future__ import annotations

import json

from tidegate import inspect
from tidegate.cli.reading import open_stream
from tidegate.cli.show import out, show, show_object, steps_shown
from tidegate.errors import SettingsInvalid
from tidegate.quality.proposals import Proposal


def learn(
    pipeline: str,
    stage: str | None,
    suite: str | None,
    batches: int,
    rows: int,
    force: bool,
    generation: int | None,
    as_json: bool,
) -> None:
    """Write a suite file, and show its expectations and what each is based on.

    Args:
        suite: The suite's name; None for the pipeline's.
        batches: The number of batches to learn from.
        rows: The approximate number of emissions to read.
        force: Replace an existing file.

    Raises SettingsInvalid if the file exists, or there is nothing to learn from.
    """
    app, stream = open_stream(pipeline, generation)
    name = suite or stream.pipeline
    file = app.settings.expectations / f"{name}.json"
    if file.exists() and not force:  # checked first, since reading the batches takes long
        raise SettingsInvalid(
            f"{file} already exists", "Name another suite with --suite, or give --force to replace it."
        )
    from tidegate.quality.gate import check as evaluate  # late: Great Expectations takes seconds to import

    with steps_shown(quiet=as_json) as progress:
        progress(f"read batches of {stream}")
        learned = inspect.learn_suite(app, stream, evaluate, stage, batches, rows)
    document = learned.suite(name)
    inspect.write_suite(file, document, force)
    if as_json:
        show_object(
            {"file": str(file), **document, "refuted": [proposal.written for proposal in learned.refuted]}
        )
        return
    title = f"From {learned.rows:,} emissions of batches {learned.first} to {learned.last} of {stream}"
    show([_row(proposal) for proposal in learned.proposals], False, title)
    for proposal in learned.refuted:
        out.print(f"Left out, since it did not hold: {proposal.type}", markup=False, soft_wrap=True)
    for line in (
        f"Written: {file}",
        "Read it, then name it in the pipeline file:",
        f"  quality: {{suite: {name}}}",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _row(proposal: Proposal) -> dict[str, str]:
    kwargs = json.dumps(dict(proposal.kwargs), ensure_ascii=False, default=str)
    return {
        "expectation": proposal.type,
        "with": kwargs if len(kwargs) <= 60 else f"{kwargs[:59]}…",
        "severity": proposal.severity or "critical",
        "from": proposal.source,
    }
