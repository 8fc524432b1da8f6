"""`tidegate compact`: fold state, expire old state, remove files that nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json, pipeline_names
from tidegate.cli.output import show, steps_shown

if TYPE_CHECKING:
    from tidegate import maintenance
    from tidegate.app import App
    from tidegate.ledger import Stream


@click.command()
@click.argument("pipelines", nargs=-1, shell_complete=pipeline_names)
@click.option("--dry-run", is_flag=True, help="Say what would be done, do nothing.")
@as_json
def compact(pipelines: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Fold the state of PIPELINES now, or of all where it is due; then remove files that nobody reads.

    Safe beside running batches; a pipeline that fails stops no other. State can be read as of any batch
    of the last TIDEGATE_TIME_TRAVEL days.
    """
    from tidegate import maintenance
    from tidegate.app import App, stream_of

    app = App.for_reading() if dry_run else App.from_environment()
    requested = [stream_of(app.pipeline(name)) for name in pipelines]
    streams = requested or app.ledger.streams()
    with steps_shown(quiet=as_json) as progress:
        results, error = maintenance.work_on_streams(
            streams, lambda stream: _maintained(app, stream, bool(requested), dry_run, progress)
        )
    if as_json:
        show([_object(*result) for result in results], True)
    else:
        title = "What would be done" if dry_run else ""
        show([_row(*result) for result in results], False, title, empty="No batch was planned yet.")
    if error is not None:
        raise error


def _maintained(
    app: App, stream: Stream, now: bool, dry_run: bool, progress: Callable[[str], None]
) -> tuple[maintenance.Compaction, maintenance.Cleaned]:
    from tidegate import maintenance

    progress(f"compact {stream}")
    compaction = maintenance.compact_state(app, stream, only_if_due=not now, dry_run=dry_run)
    progress(f"clean {stream}")
    return compaction, maintenance.clean(app, stream, app.ledger.now(), dry_run=dry_run)


def _row(compaction: maintenance.Compaction, cleaned: maintenance.Cleaned) -> dict[str, Any]:
    before, after = compaction.before, compaction.after
    return {
        "stream": str(compaction.stream),
        "batch": compaction.seq,
        "rows": _change(before.rows, after.rows),
        "files": _change(before.files, after.files),
        "MB": _change(round(before.bytes / 1e6, 1), round(after.bytes / 1e6, 1)),
        "removed": _removed(cleaned),
        "note": "; ".join(filter(None, (compaction.note, _given_up(cleaned), cleaned.note))),
    }


def _change(before: float, after: float) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"


def _removed(cleaned: maintenance.Cleaned) -> str:
    parts = {"files": cleaned.files, "batches of the ledger": cleaned.batches}
    return ", ".join(f"{number:,} {what}" for what, number in parts.items() if number) or "nothing"


def _given_up(cleaned: maintenance.Cleaned) -> str:
    state = f"state before batch {cleaned.given_up} is given up" if cleaned.given_up is not None else ""
    names = {"quarantine": "quarantine", "outbox": "outboxes"}
    expired = [f"{names[kind]} up to batch {seq} expired" for kind, seq in cleaned.expired.items()]
    return "; ".join(filter(None, (state, *expired)))


def _object(compaction: maintenance.Compaction, cleaned: maintenance.Cleaned) -> dict[str, Any]:
    return {
        "pipeline": compaction.stream.pipeline,
        "generation": compaction.stream.generation,
        "batch": compaction.seq,
        "note": compaction.note,
        "snapshot": compaction.snapshot,
        "before": compaction.before._asdict(),
        "after": compaction.after._asdict(),
        "given_up_before": cleaned.given_up,
        "quarantine_expired_to": cleaned.expired.get("quarantine"),
        "outboxes_expired_to": cleaned.expired.get("outbox"),
        "removed": {"names": list(cleaned.names), "files": cleaned.files, "bytes": cleaned.bytes},
        "batches_removed_from_ledger": cleaned.batches,
        "cleaning": cleaned.note,
    }
