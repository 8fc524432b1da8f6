"""`tidegate check`: evaluate quality suites over committed batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json, first_and_last, generation, open_stream, pipeline_argument, stage
from tidegate.cli.output import show, show_object, steps_shown
from tidegate.errors import QualityFailed
from tidegate.numerals import batches_named

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.inspect import Checked
    from tidegate.ledger import Stream
    from tidegate.model.quality import QualityCheck
    from tidegate.quality.verdict import ExpectationResult

    Check = Callable[[int], list[Checked]]
    Result = tuple[Checked, ExpectationResult]

_SAMPLE = 5
"""The number of failing rows that people see per expectation."""


@click.command()
@pipeline_argument
@click.option(
    "--batch",
    "batches",
    metavar="A..B",
    help="Batches A to B, both included; or one: A. Default: the newest.",
)
@click.option(
    "--state", "of_state", is_flag=True, help="The whole state after a batch, not what it sent out."
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    help="A suite by its name, in the folder of expectations; repeatable. "
    "Default: the pipeline's own checks.",
)
@stage
@click.option(
    "--expectation",
    "only",
    multiple=True,
    metavar="TYPE",
    help="Only expectations of this type, or TYPE(COLUMN); repeatable.",
)
@click.option("--bisect", is_flag=True, help="Find the first batch that breaks an expectation.")
@generation
@as_json
def check(
    pipeline: str,
    generation: int | None,
    batches: str | None,
    of_state: bool,
    suites: Sequence[str],
    stage: str | None,
    only: Sequence[str],
    bisect: bool,
    as_json: bool,
) -> None:
    """Evaluate quality suites over what PIPELINE has sent out, or over its state, without running anything.

    Exit code 2 where something critical is not met; with --bisect where a batch is found. Over batches
    --bisect looks at one after the other; over states it halves, and takes for granted that what is broken
    stays broken.
    """
    from tidegate import inspect

    app, stream = open_stream(pipeline, generation)
    own = _own_checks(app, pipeline, generation, stream)
    checks = inspect.requested_checks(own, suites, stage, of_state)
    seqs = _seqs(app, stream, batches, of_state, bisect)
    from tidegate.quality.gate import check as evaluate  # late: Great Expectations takes seconds to import

    checker = inspect.Checker(app, stream, checks, evaluate, only)
    look = checker.state if of_state else checker.batch
    with steps_shown(quiet=as_json) as progress:
        if bisect:
            _show_bisection(partial(_reported, look, progress), seqs, stream, of_state, as_json)
        else:
            _show_all(partial(_reported, look, progress), seqs, stream, of_state, as_json)


def _reported(look: Check, progress: Callable[[str], None], seq: int) -> list[Checked]:
    progress(f"batch {seq}")
    return look(seq)


def _own_checks(app: App, pipeline: str, generation: int | None, stream: Stream) -> tuple[QualityCheck, ...]:
    """Return the checks of the file; of a generation that is given, the checks that were planned last."""
    from tidegate.ledger.planned import planned_pipeline
    from tidegate.model.planned import with_checkpoints

    if generation is None:
        return with_checkpoints(app.pipeline(pipeline), app.settings.expectations).checks
    plan = app.ledger.plan(stream, max(app.ledger.head(stream).seq, 1))
    return planned_pipeline(plan).checks if plan is not None else ()


def _seqs(app: App, stream: Stream, batches: str | None, of_state: bool, bisect: bool) -> Sequence[int]:
    """Return the batches to evaluate: without `batches` the newest; for a bisection all that still exist."""
    from tidegate import inspect

    first, last = first_and_last(batches)
    if batches is None and not bisect:
        first = app.ledger.head(stream).seq
    seqs = inspect.kept_states if of_state else inspect.committed_seqs
    return seqs(app, stream, first, last)


def _show_all(look: Check, seqs: Sequence[int], stream: Stream, of_state: bool, as_json: bool) -> None:
    """Show all results of one batch; of several batches, show people only the expectations that are not
    met.
    """
    from tidegate.quality.suite import Severity

    results = [pair for seq in seqs for pair in _pairs(look(seq))]
    failed = [pair for pair in results if not pair[1].passed]
    met = f"{len(results) - len(failed)} of {len(results)} expectations are met"
    text = f"{met} in {_named(seqs, stream, of_state)}"
    if as_json:
        show([_object(*pair) for pair in results], True)
    else:
        show([_row(*pair) for pair in (results if len(seqs) == 1 else failed)], False, text, empty=f"{text}.")
    critical = sum(result.severity == Severity.CRITICAL for _, result in failed)
    if critical:
        raise QualityFailed(
            f"{critical} expectations are not met in {_named(seqs, stream, of_state)}",
            "Nothing was changed. With --bisect the first batch that breaks one is looked for.",
        )


def _show_bisection(look: Check, seqs: Sequence[int], stream: Stream, of_state: bool, as_json: bool) -> None:
    from tidegate import inspect

    find = inspect.first_broken if of_state else inspect.first_failing
    bisection = find(seqs, lambda seq: any(checked.failed for checked in look(seq)))
    first = bisection.first
    failed = [] if first is None else [pair for pair in _pairs(look(first)) if not pair[1].passed]
    looked_at = f"looked at {bisection.looked_at} of {len(seqs)}"
    if as_json:
        bounds = {"from": seqs[0], "to": seqs[-1], "looked_at": bisection.looked_at}
        show_object({"first": first, **bounds, "failed": [_object(*pair) for pair in failed]})
    elif first is None:
        where = _named(seqs[-1:] if of_state else seqs, stream, of_state)
        show([], False, empty=f"All expectations are met in {where} ({looked_at}).")
    else:
        title = f"The first that does not meet them is {_named([first], stream, of_state)} ({looked_at})"
        show([_row(*pair) for pair in failed], False, title)
    if first is not None:
        raise QualityFailed(
            f"The first that does not meet its expectations is {_named([first], stream, of_state)}",
            f"`tidegate emissions {stream.pipeline} --batch {first}` shows what it sent out.",
        )


def _pairs(checks: Iterable[Checked]) -> Iterator[Result]:
    return ((checked, result) for checked in checks for result in checked.verdict.expectations)


def _named(seqs: Sequence[int], stream: Stream, of_state: bool) -> str:
    after = "the state after " if of_state else ""
    return f"{after}{batches_named(seqs[0], seqs[-1])} of {stream}"


def _object(checked: Checked, result: ExpectationResult) -> dict[str, Any]:
    """Return a result for programs."""
    return {
        "batch": checked.seq,
        "is_state": checked.is_state,
        "suite": checked.suite,
        "stage": checked.stage,
        "of": checked.audited,
        "type": result.type,
        "columns": list(result.columns),
        "severity": result.severity.value,
        "passed": result.passed,
        "observed": result.observed,
        "rows": result.rows,
        "unexpected": result.unexpected,
        "share": result.share,
        "failing": [dict(row) for row in result.failing],
        "error": result.error,
    }


def _row(checked: Checked, result: ExpectationResult) -> dict[str, Any]:
    """Return a result for people."""
    failing = "; ".join(_in_short(row) for row in result.failing[:_SAMPLE]) if not result.passed else ""
    return {
        "batch": checked.seq,
        "suite": checked.suite,
        "expectation": result.title if result.columns else result.type,
        "severity": result.severity.value,
        "": "met" if result.passed else "NOT MET",
        "found": result.finding,
        "such as": failing,
    }


def _in_short(row: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())
