"""Propose a suite from history: from a sample of emissions and the counts of batches that still exist."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, batch_named, needed_by
from tidegate.batch.suites import stage_facts
from tidegate.errors import SettingsInvalid
from tidegate.inspect.check import Evaluate, committed_seqs, whole_stage
from tidegate.ledger import Attempt, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.kernel_stages import deduplication_rule, kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.numerals import batches_named, counted
from tidegate.quality.audit import Audit, TableRows, audited_rows
from tidegate.quality.facts import BUILTIN_TYPES, BatchCounts, batch_counts, needs_of
from tidegate.quality.proposals import Proposal, propose_for_columns, propose_for_stage
from tidegate.quality.suite import parse_suite
from tidegate.storage import DataFile, Store
from tidegate.storage.datafile import data_errors, open_data
from tidegate.storage.schema import KEY, KEY_COLUMNS, TIMESTAMP, VALUE, WINDOW

_READ = (KEY, TIMESTAMP, *WINDOW, KEY_COLUMNS, VALUE)


@dataclass(frozen=True)
class Learned:
    """A proposed suite of a stage, from `rows` emissions of batches `first` to `last`.

    Args:
        refuted: Proposals that did not hold on all of the sample, and are not in the suite.
    """

    stage: str
    first: int
    last: int
    rows: int
    proposals: tuple[Proposal, ...]
    refuted: tuple[Proposal, ...]

    def suite(self, name: str) -> dict[str, Any]:
        """Return the suite as a file stores it.

        Args:
            name: Its name in the file.
        """
        batches = batches_named(self.first, self.last)
        source = f"{counted(self.rows, 'emission')} of the stage {self.stage}, {batches}"
        expectations = [proposal.written for proposal in self.proposals]
        return {"name": name, "expectations": expectations, "meta": {"learned": source}}


def learn_suite(
    app: App,
    stream: Stream,
    evaluate: Evaluate,
    stage: str | None = None,
    batches: int = 20,
    rows: int = 100_000,
) -> Learned:
    """Propose a suite that the newest batches pass.

    The proposals are based on the batches' counts, and on a sample of emissions: whole row groups, or their
    first rows, evenly from all files. A batch whose emissions have other columns or types contributes only
    its counts.

    Args:
        stage: The stage; None for the last.
        batches: The number of batches.
        rows: The approximate number of emissions in the sample.

    Raises SettingsInvalid if there is no batch, or no emissions of the stage are stored; LakeDamaged,
    LakeUnavailable, LedgerUnavailable.
    """
    seqs = committed_seqs(app, stream, max(1, app.ledger.head(stream).seq - batches + 1))
    pipeline, chosen = _stage(app, stream, seqs[-1], stage)
    outboxes = StoredOutboxes(app, stream)
    samples = [_sample(outboxes, seq, chosen.name, rows // len(seqs)) for seq in seqs]
    looked_at = _alike([sample.rows.in_memory for sample in samples if sample.rows is not None])
    proposals = [
        *propose_for_stage(
            kernel_stage(pipeline, chosen), [sample.counts for sample in samples], _drops_late(pipeline)
        ),
        *propose_for_columns(looked_at, pipeline.key_of(chosen)),
    ]
    # proposals come from all samples together, and can fail on one of them
    refuted = _refuted(app, samples, pipeline, chosen, proposals, evaluate)
    return Learned(
        chosen.name,
        seqs[0],
        seqs[-1],
        sum(part.num_rows for part in looked_at),
        tuple(proposal for number, proposal in enumerate(proposals) if number not in refuted),
        tuple(proposals[number] for number in sorted(refuted)),
    )


def write_suite(file: Path, suite: dict[str, Any], overwrite: bool = False) -> None:
    """Write a suite file. Raises SettingsInvalid if it exists, unless `overwrite` is set, or if it cannot
    be written.

    Args:
        file: The path, whose folder is created if it does not exist.
        suite: The suite as `Learned.suite` returns it.
        overwrite: Whether an existing file is replaced.
    """
    text = json.dumps(suite, indent=2, ensure_ascii=False) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # "x" fails if the file exists: a check before would race with an editor.
        with file.open("w" if overwrite else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise SettingsInvalid(
            f"{file} already exists", "Name another suite with --suite, or give --force to replace it."
        ) from error
    except OSError as error:
        raise SettingsInvalid(
            f"{file} cannot be written: {error.strerror or error}",
            "Set TIDEGATE_EXPECTATIONS for another folder.",
        ) from error


@dataclass(frozen=True)
class _Sample:
    """A batch: its counts, and some of its emissions as a suite sees them, without deletions.

    `rows` is None if the emissions of the stage were not stored.
    """

    plan: Plan
    attempt: Attempt
    counts: BatchCounts
    rows: TableRows | None


def _stage(app: App, stream: Stream, seq: int, name: str | None) -> tuple[Pipeline, Stage]:
    """Return pipeline and stage of the newest batch. Raises SettingsInvalid if its emissions are not
    stored.
    """
    plan = app.ledger.plan(stream, seq)
    assert plan is not None, "`committed_seqs` gives batches that have one"
    pipeline = planned_pipeline(plan)
    name = name or pipeline.stages[-1].name
    if name not in pipeline.published_stages:
        raise SettingsInvalid(
            f"The emissions of the stage {name} are not kept in batch {seq} of {stream}",
            f"Those of these are: {', '.join(pipeline.published_stages)}.",
        )
    return pipeline, next(stage for stage in pipeline.stages if stage.name == name)


def _drops_late(pipeline: Pipeline) -> bool:
    # Each of these drops records that come after it has forgotten their key or window.
    by_columns = deduplication_rule(pipeline) is not None
    sequences = [source.sequence for source in pipeline.sources.values()]
    forgets = any(sequence is not None and sequence.keep_ms is not None for sequence in sequences)
    return by_columns or forgets or any(stage.window is not None for stage in pipeline.source_stages)


def _sample(outboxes: StoredOutboxes, seq: int, stage: str, rows: int) -> _Sample:
    app, stream = outboxes.app, outboxes.stream
    plan, attempt = app.ledger.plan(stream, seq), app.ledger.attempt(stream, seq)
    assert plan is not None, "`committed_seqs` gives batches that have one"
    assert attempt is not None, "it is committed"
    pipeline = planned_pipeline(plan)
    counts = batch_counts(attempt.counts, stage, pipeline.sources.explodes)
    if stage not in pipeline.published_stages:
        return _Sample(plan, attempt, counts, None)
    store = app.lake(stream).store
    with needed_by(batch_named(stream, seq)):
        files = outboxes.files(app.manifest(stream, attempt.manifest), stage)
        audited = audited_rows(pipeline, whole_stage("", stage), store, files)
        return _Sample(plan, attempt, counts, TableRows.from_stored(audited, _parts(store, files, rows)))


def _parts(store: Store, files: Sequence[DataFile], rows: int) -> Iterator[pa.Table]:
    """Yield about `rows` emissions that are not deletions, from row groups spread evenly over the files."""
    groups = list(_row_groups(store, files))
    if not groups:
        return
    # whole row groups are read, since Parquet cannot read single rows
    average = max(1, sum(number for *_, number in groups) // len(groups))
    count = min(len(groups), max(1, round(rows / average)))
    for chosen in sorted({at * len(groups) // count for at in range(count)}):
        file, group, _ = groups[chosen]
        with open_data(store, file) as parquet, data_errors(store, file):
            columns = [name for name in _READ if name in parquet.schema_arrow.names]
            part = parquet.read_row_group(group, columns=columns)
        # A deletion has no value, so a suite over values does not see it.
        yield part.filter(pc.is_valid(part[VALUE])).slice(0, max(1, rows // count))


def _row_groups(store: Store, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, int, int]]:
    """Yield the file, the number and the rows of each row group."""
    for file in files:
        with open_data(store, file) as parquet:
            for group in range(parquet.num_row_groups):
                yield file, group, parquet.metadata.row_group(group).num_rows


def _alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return the tables with the same columns and types as the newest table that has rows."""
    newest = next((table for table in reversed(tables) if table.num_rows), None)
    return [] if newest is None else [table for table in tables if table.schema.equals(newest.schema)]


def _refuted(
    app: App,
    samples: Sequence[_Sample],
    pipeline: Pipeline,
    stage: Stage,
    proposals: Sequence[Proposal],
    evaluate: Evaluate,
) -> set[int]:
    """Return the numbers of the proposals that do not hold on a batch, by Great Expectations itself."""
    written: dict[str, Any] = {
        "name": "proposed",
        "expectations": [proposal.written for proposal in proposals],
    }
    suite = parse_suite(json.dumps(written), "The proposed suite", additional_types=BUILTIN_TYPES)
    needs = needs_of(written["expectations"])
    refuted: set[int] = set()
    for sample in samples:
        if sample.rows is not None:
            with needed_by(batch_named(sample.plan.stream, sample.plan.seq)):
                facts = stage_facts(app, sample.plan, sample.attempt, pipeline, stage, needs)
                verdict = evaluate(Audit("What is proposed", suite, sample.rows, facts=facts))
            # Great Expectations' results are numbered from 1 in the order of the suite.
            refuted |= {result.number - 1 for result in verdict.failed()}
    return refuted
