"""The commands `quarantine replay` and `quarantine discard`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tidegate import quarantine
from tidegate.app import App, stream_of
from tidegate.cli.batch import report_object, run_trigger, trigger_now
from tidegate.cli.options import RunOptions, login_name
from tidegate.cli.output import out
from tidegate.cli.quarantine import opened, record_filter
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Stream
from tidegate.quality import CheckBeside

Rows = Callable[[], Iterator[pa.Table]]


def replay(
    file: Path | None,
    edit: tuple[str | None, str | None],
    by: str | None,
    reason: str,
    as_json: bool,
    pipeline: str,
    generation: int | None,
    **which: Any,
) -> None:
    """Read open records again, in a batch of their own, and run all steps of the batch.

    Args:
        file: An exported, possibly edited file with the records; None replays the records of the filters.
        edit: The expressions for the value and the key of each record; see `quarantine.RecordEdit`.
        by: The user who decides; None for the login name.
        which: The filters; see `quarantine.record_filter`.

    Raises SettingsInvalid if the generation is not that of the file, or if filters are given beside a file.
    """
    app = App.from_environment()
    loaded = app.pipeline(pipeline)
    stream = stream_of(loaded)
    if generation not in (None, stream.generation):
        raise SettingsInvalid(
            f"The file of {loaded.pipeline} is of generation {stream.generation}",
            "A batch can only be made of the generation that its file has.",
        )
    request = quarantine.ReplayedRecords(
        _requested(app, stream, file, edit, which), by or login_name(), reason, file is not None
    )
    run_id = f"replay__{uuid4().hex[:12]}"
    while True:
        trigger = trigger_now(run_id, RunOptions(), replay=request)
        with CheckBeside() as quality:
            outcome, report = run_trigger(app, loaded, trigger, quality, quiet=as_json)
        if report is None or report.plan.run_id == run_id:
            break
        run_id = (
            f"replay__{uuid4().hex[:12]}"  # it was a batch that had been planned before, which goes first
        )
    if as_json:
        print(json.dumps({"note": outcome.note} | (report_object(report) if report else {"batch": None})))
    elif report is None:
        _print_text(f"{outcome.note[0].upper()}{outcome.note[1:]}.")
    else:
        counts = report.counts
        _print_text(
            f"{outcome.note[0].upper()}{outcome.note[1:]}: {counts.get('used', 0):.0f} used, "
            f"{counts.get('quarantined', 0):.0f} in quarantine again, {counts.get('emitted', 0):.0f} emitted."
        )


def discard(
    file: Path | None,
    by: str | None,
    reason: str,
    pipeline: str,
    generation: int | None,
    as_json: bool,
    **which: Any,
) -> None:
    """Record that open records will not be used. Args: as `replay`."""
    app = App.from_environment()
    _, stream, _ = opened(pipeline=pipeline, generation=generation, **which)
    rows = _requested(app, stream, file, (None, None), which)
    request = quarantine.ResolutionRequest(rows, by or login_name(), reason, file is not None)
    count, skipped = quarantine.discard_records(app, stream, request)
    if as_json:
        print(json.dumps({"discarded": count, "resolved_before": skipped.resolved}))
    else:
        _print_text(f"{count} records of {stream} are discarded{skipped}.")


def _requested(
    app: App,
    stream: Stream,
    file: Path | None,
    edit: tuple[str | None, str | None],
    which: dict[str, Any],
) -> Rows:
    where = record_filter(**which)
    if file is not None and where != quarantine.QuarantineFilter((), (), ()):
        raise SettingsInvalid(
            "A file says itself which records are meant", "Give filters to `export`, or none beside --from."
        )
    rows: Rows = (
        partial(quarantine.iter_exported, file)
        if file is not None
        else partial(quarantine.iter_open, app, stream, where)
    )
    record_edit = quarantine.RecordEdit(*edit)
    return lambda: map(record_edit.apply, rows())


def _print_text(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
