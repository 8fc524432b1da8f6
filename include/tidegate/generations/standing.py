"""Show how the generations of a pipeline stand, and what a promotion would send. Only reads.

A page waits for the answer, so outboxes are read only if the ledger says that they are small enough. Without
a bound, `tidegate generation diff` gives the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.app.root import App
from tidegate.batch.still_batch import still_plan
from tidegate.errors import EmissionsExpired, Halted, SettingsInvalid, TidegateError
from tidegate.generations.compare import GenerationDifference, compare_generations
from tidegate.generations.net import net_outboxes
from tidegate.generations.promotion import require_caught_up
from tidegate.kernel.json_text import json_texts
from tidegate.ledger import Stream
from tidegate.ledger.report import batch_history
from tidegate.storage.schema import KEY, VALUE, WINDOW

MOST_BATCHES = 500
"""The most batches whose outboxes are read for a page."""
MOST_ROWS = 1_000_000
"""The most rows in the files of these batches. On two cores, folding and comparing as many takes a second,
beside the time to read them; a page does it twice.
"""
_PREVIEW = "preview"
"""The run of a plan that is never stored."""


@dataclass(frozen=True)
class PartitionProgress:
    """The progress of a generation in a partition.

    Args:
        offset: the next offset to read.
        time_ms: the time of the partition after the last batch, epoch ms; None if no stage keeps time.
        behind: the offsets that the generation in charge has read, and this one has not.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int | None
    behind: int


@dataclass(frozen=True)
class GenerationStanding:
    """The state of a generation among those of its pipeline.

    Args:
        role: `in charge`, `withholds`, or `publishes` if none is in charge.
        seq: its last committed batch; 0 before the first one.
        published: the batches that it publishes, such as `1-7, 12-`.
        withheld: the batches that a promotion would publish.
        newest_ms: the timestamp of the newest record that it has read, epoch ms.
        partitions: those that are furthest behind first.
    """

    stream: Stream
    role: str
    seq: int
    published: str
    withheld: range
    newest_ms: int | None
    partitions: Sequence[PartitionProgress]

    @property
    def behind(self) -> int:
        """The offsets that the generation in charge has read, and this one has not."""
        return sum(progress.behind for progress in self.partitions)


def generation_standings(app: App, streams: Sequence[Stream]) -> list[GenerationStanding]:
    """Return how generations of one pipeline stand, in the given order. Raises LedgerUnavailable."""
    statuses = {status.stream: status for status in app.ledger.stream_statuses(streams)}
    newest = {stream: status.newest_ms for stream, status in statuses.items()}
    return [_standing(app, stream, newest.get(stream)) for stream in streams]


def _standing(app: App, stream: Stream, newest_ms: int | None) -> GenerationStanding:
    charge, head = app.ledger.charge(stream.pipeline), app.ledger.head(stream)
    leader = Stream(stream.pipeline, charge.generation) if charge.generation is not None else stream
    unread = head.unread_of(app.ledger.head(leader))
    # Any stage: all of them keep the time of the source, and a later one can lag behind it.
    times: dict[tuple[str, int], int] = {}
    for stage_times in app.ledger.times(stream).values():
        times |= {at: max(time_ms, times.get(at, time_ms)) for at, time_ms in stage_times.items()}
    rows = [
        PartitionProgress(*at, head.offsets.get(at, 0), times.get(at), unread.get(at, 0))
        for at in sorted({*head.offsets, *unread})
    ]
    is_withheld = charge.withholds(stream.generation)
    return GenerationStanding(
        stream,
        charge.role(stream.generation),
        head.seq,
        charge.published_batches(stream.generation),
        range(charge.released(stream.generation) + 1, head.seq + 1) if is_withheld else range(0),
        newest_ms,
        sorted(rows, key=lambda row: -row.behind),
    )


@dataclass(frozen=True)
class NetEmissions:
    """The emissions of a stage that a promotion by net differences would send.

    Args:
        examples: the first emissions, each with its key, window and value as JSON text (None: a deletion).
    """

    stage: str
    values: int
    deletions: int
    examples: Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class PromotionPreview:
    """The consequences of a promotion.

    Args:
        refusal: why it would be refused now; None if nothing is known that refuses it. The sinks are not
            asked.
        withheld: the batches that it would publish.
        emissions: stage -> emissions of these batches; None if there are too many batches to count them, or
            if the ledger has forgotten the counts of one.
        net: what a promotion with `--net` would send instead; None if it is refused.
        net_refusal: why it would be refused.
    """

    refusal: TidegateError | None
    withheld: range
    emissions: Mapping[str, int] | None
    net: Sequence[NetEmissions] | None = None
    net_refusal: TidegateError | None = None


def preview_promotion(app: App, standing: GenerationStanding, most: int = 10) -> PromotionPreview:
    """Return what a promotion of a generation would send, with at most `most` examples of each stage.

    Raises LedgerUnavailable, LakeDamaged, LakeUnavailable.
    """
    refusal: TidegateError | None = None
    try:
        _require_ready(app, standing.stream)
    except (Halted, SettingsInvalid) as error:
        refusal = error
    emissions = _withheld_emissions(app, standing)
    try:
        net = _net_emissions(app, standing.stream, most)
    except (EmissionsExpired, Halted, SettingsInvalid) as error:
        return PromotionPreview(refusal, standing.withheld, emissions, None, error)
    return PromotionPreview(refusal, standing.withheld, emissions, net)


def _require_ready(app: App, stream: Stream) -> None:
    charge, head = app.ledger.charge(stream.pipeline), app.ledger.head(stream)
    assert charge.generation is not None, "a generation withholds, so another one is in charge"
    replaced = app.ledger.head(Stream(stream.pipeline, charge.generation))
    require_caught_up(app, head, replaced, may_be_behind=False)


def _withheld_emissions(app: App, standing: GenerationStanding) -> dict[str, int] | None:
    if len(standing.withheld) > MOST_BATCHES:
        return None
    emissions: dict[str, int] = {}
    end = standing.withheld.stop
    for entry in batch_history(app.ledger, standing.stream, end, len(standing.withheld)):
        if entry.report is None:
            return None
        for stage, counts in entry.report.stages.items():
            emissions[stage] = emissions.get(stage, 0) + int(counts.get("emitted", 0))
    return emissions


def _net_emissions(app: App, stream: Stream, most: int) -> list[NetEmissions]:
    charge, head = app.ledger.charge(stream.pipeline), app.ledger.head(stream)
    before = app.ledger.plan(stream, head.seq)
    if before is None:
        raise Halted(f"{stream} has no batch yet", "Run it first.")
    consumed = {Stream(stream.pipeline, span.generation) for span in charge.spans()}
    require_within_bounds(app, stream, *consumed)
    outboxes = net_outboxes(app, charge, still_plan(head, before, _PREVIEW))
    return [
        NetEmissions(
            stage,
            rows.num_rows - rows[VALUE].null_count,
            rows[VALUE].null_count,
            _examples(rows.slice(0, most)),
        )
        for stage, rows in outboxes.items()
    ]


def _examples(rows: pa.Table) -> list[dict[str, object]]:
    texts = json_texts(rows[VALUE].combine_chunks()).to_pylist()
    keys = rows.select([KEY, *WINDOW]).to_pylist()
    return [{**row, VALUE: text} for row, text in zip(keys, texts, strict=True)]


def bounded_difference(app: App, old: Stream, new: Stream) -> GenerationDifference:
    """Return the difference between two generations, as `compare_generations`, if it can be had quickly.

    Raises Halted if there is too much to read, or if they have no point in common; LakeDamaged,
    LakeUnavailable.
    """
    require_within_bounds(app, new, old)
    return compare_generations(app, old, new)


def require_within_bounds(app: App, new: Stream, *replaced: Stream) -> None:
    """Raise Halted if the outboxes of these generations, and of those that they began from, are too large to
    be read while a person waits.
    """
    streams = {origin for stream in (new, *replaced) for origin in _with_origins(app, stream)}
    batches = sum(app.ledger.head(stream).seq for stream in streams)
    # Batches first: the ledger can have the commits of 100,000. Rows are those of all files of a batch.
    if (
        batches <= MOST_BATCHES
        and sum(manifest.file_rows for stream in streams for _, manifest in app.ledger.committed(stream))
        <= MOST_ROWS
    ):
        return
    raise Halted(
        f"The generations have {batches:,} batches, which takes too long to read for a page",
        f"Run `tidegate generation diff {new.pipeline} {new.generation}`.",
    )


def _with_origins(app: App, stream: Stream) -> list[Stream]:
    streams = [stream]
    while (origin := app.ledger.origin(streams[-1])) is not None:
        streams.append(origin[0])
    return streams
