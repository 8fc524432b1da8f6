"""Ask sinks about the outbox of a batch before the batch is decided: afterwards a sink could only halt.

What a database refuses as a row, only the database knows. Such emissions are moved to quarantine here, if the
sink says so. Those that are too large, or have a timestamp that a topic refuses, are found in `spark.outbox`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.app.tables import check_columns
from tidegate.batch_counts import REFUSED_ROW, came_in, in_quarantine
from tidegate.failpoints import failpoint
from tidegate.formats.decoded import Reason
from tidegate.ledger import Attempt, Plan
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink
from tidegate.storage import DataFile
from tidegate.storage.datafile import RowWriter, rewritten
from tidegate.storage.manifest import manifest_of
from tidegate.storage.quarantine_files import OUTBOX_COLUMNS, quarantined_emissions


def check_outboxes(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> None:
    """Ask each sink whether it would take all emissions, and the tables for other engines whether they take
    the columns: after the commit they could only halt.
    """
    for sink in _sinks(app, plan, pipeline):
        outbox = sink.outbox(plan, attempt)
        if outbox.emitted:
            sink.check_outbox(outbox)
    check_columns(app, plan, pipeline, attempt)


def without_refused(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> Attempt:
    """Return the attempt with the emissions that sinks refuse in quarantine, and not in an outbox any more.

    No sink of a stage gets an emission that one of them refuses. The result is the same attempt if none is
    refused; otherwise its files count only when the ledger has them. If more is in quarantine than `stop`
    allows, others that are refused can still be in an outbox.

    Raises SinkRefused, SettingsInvalid, LakeDamaged, …Unavailable.
    """
    if plan.erasure is not None:  # its emissions are deletions
        return attempt
    sinks = list(_sinks(app, plan, pipeline))
    while True:
        before = attempt
        for sink in sinks:
            most = _most_refused(plan, pipeline, attempt)
            if most is not None and most < 0:
                return attempt
            outbox = sink.outbox(plan, attempt)
            refused = sink.refused(outbox, most) if outbox.emitted else {}
            if refused:
                attempt = _quarantined(app, outbox, attempt, refused)
        # Sinks are asked until all of them take what is left: other rows may be written now.
        if attempt is before:
            return attempt


def _most_refused(plan: Plan, pipeline: Pipeline, attempt: Attempt) -> int | None:
    """Return how many more emissions may go into quarantine before the batch stops; None: any number."""
    rule = pipeline.quarantine
    if plan.replay is not None or rule is None or rule.stop is None:
        return None
    most = rule.stop.most(came_in(attempt.stage_counts("")))
    return None if most is None else most - in_quarantine(attempt.counts)


def _sinks(app: App, plan: Plan, pipeline: Pipeline) -> Iterator[OpenSink[Any]]:
    """Yield the sinks that get the batch; others have its emissions already."""
    inherited = plan.reused.sinks if plan.reused is not None else ()
    yield from (sink for sink in app.sinks(plan.stream, pipeline) if sink.name not in inherited)


def _quarantined(app: App, outbox: Outbox, attempt: Attempt, refused: Mapping[int, str]) -> Attempt:
    """Return the attempt with some emissions of an outbox in quarantine.

    Args:
        refused: the place in the outbox -> why the emission is refused.
    """
    plan, stage = outbox.plan, outbox.stage
    assert stage is not None, "what is in quarantine already is not refused"
    folder = app.lake(plan.stream).files("quarantine", "", attempt.name)
    quarantine = RowWriter(outbox.store, f"{folder}/refused-{uuid4().hex[:12]}.parquet", "quarantine")
    with failpoint("validate.quarantine"), quarantine:
        replaced = dict(_replaced(outbox, _Sorter(refused, quarantine, plan.seq)))
    assert quarantine.file is not None, "there are refused emissions"
    manifest = app.manifest(plan.stream, attempt.manifest)
    files = [replaced.get(file.path, file) for file in manifest.files]
    remaining = [file for file in files if file is not None]
    written = manifest_of(manifest.name, manifest.seq, [*remaining, quarantine.file])
    counts = dict(attempt.stage_counts(stage.name))
    counts[REFUSED_ROW] = counts.get(REFUSED_ROW, 0) + len(refused)
    reference = app.write_manifest(plan.stream, written)
    return replace(attempt, manifest=reference, counts={**attempt.counts, stage.name: counts})


@dataclass
class _Sorter:
    """Writes refused emissions to quarantine, and leaves the others. It gets all rows from `place` on, in
    order.
    """

    refused: Mapping[int, str]
    quarantine: RowWriter
    seq: int
    place: int = 0

    def remaining(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are not refused."""
        places = range(self.place, self.place + rows.num_rows)
        self.place = places.stop
        reasons = pa.array([self.refused.get(place) for place in places], pa.string())
        is_refused = reasons.is_valid()
        reasons = pc.binary_join_element_wise(str(Reason.REFUSED_ROW), reasons.drop_null(), ": ")
        for emissions in rows.select(OUTBOX_COLUMNS).filter(is_refused).combine_chunks().to_batches():
            self.quarantine.write(quarantined_emissions(emissions, reasons, self.seq))
        return rows.filter(pc.invert(is_refused))


def _replaced(outbox: Outbox, sorter: _Sorter) -> Iterator[tuple[str, DataFile | None]]:
    """Yield the path of each file with refused emissions, and the file with its others, if it has any."""
    places = sorted(sorter.refused)
    starts = accumulate((file.rows for file in outbox.files), initial=0)
    for file, start in zip(outbox.files, starts, strict=False):
        if bisect_left(places, start) == bisect_left(places, start + file.rows):
            continue
        sorter.place = start
        stem = file.path.removesuffix(".parquet").partition(".accepted-")[0]
        path = f"{stem}.accepted-{uuid4().hex[:12]}.parquet"
        written = rewritten(outbox.store, file, path, sorter.remaining)
        # Files are sorted by their bounds: with those of the old file, the new one has its place.
        if written is not None:
            written = replace(written, least_hash=file.least_hash, most_hash=file.most_hash)
        yield file.path, written
