"""The streams of a deployment: those in the folder's files, and generations that only the ledger has; and
their conditions, from the ledger, the pipeline files and, if it was asked, Kafka.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tidegate.app.root import App, stream_of
from tidegate.clock import current_ms
from tidegate.errors import PipelineInvalid, Problem, TidegateError
from tidegate.ledger import Failure, Stream
from tidegate.ledger.stream_condition import (
    CLOCK_AHEAD_MS,
    STALLED_AFTER,
    StreamCondition,
    StreamFacts,
    derive_condition,
    read_facts,
)
from tidegate.model.pipeline import Pipeline
from tidegate.model.schedule import longest_schedule_gap
from tidegate.yaml.folder import dag_id_of
from tidegate.yaml.load import load_defaults, load_pipelines, stream_in_broken_file

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class CatalogEntry:
    """The subject of one DAG.

    Args:
        name: The name of the file without .yaml; or of the pipeline, if no file has a generation of it.
        streams: First the file's own stream, then generations of its pipeline that no file has any more. A
            stream may never have been planned.
        pipeline: None if the file has mistakes, or if there is no file.
        problems: The mistakes of the file; and those of `defaults.yaml`, with which no file has a DAG.
        has_generation: False if a file with mistakes does not say which generation it has.
    """

    name: str
    streams: tuple[Stream, ...]
    pipeline: Pipeline | None = None
    problems: tuple[Problem, ...] = ()
    dag_id_prefix: str = ""
    has_generation: bool = True

    def is_file_of(self, stream: Stream) -> bool:
        """Return whether the file has a stream, or can have it after its mistakes are corrected."""
        # An entry of the ledger alone: no file can own its streams.
        if self.is_without_file:
            return False
        own = self.streams[:1]
        return own == (stream,) or (not self.has_generation and own[0].pipeline == stream.pipeline)

    @property
    def is_without_file(self) -> bool:
        """Whether only the ledger has it: no file, and so no DAG, continues it."""
        return self.pipeline is None and not self.problems

    @property
    def dag_id(self) -> str:
        """The id of its DAG in Airflow."""
        return dag_id_of(self.name, self.dag_id_prefix)


def catalog_entries(app: App) -> list[CatalogEntry]:
    """Return all entries by name. A folder whose files have not changed is not parsed again.

    Raises LedgerUnavailable.
    """
    folder = app.settings.pipelines
    # parsing is cached by this stamp, since a page reads the catalog for each request
    stamp = _stamp(folder)
    entries = _with_orphans(_files(folder, stamp), app.ledger.streams())
    prefix, problems = _defaults(folder, stamp)
    return [
        replace(entry, dag_id_prefix=prefix)
        if entry.is_without_file
        else replace(entry, dag_id_prefix=prefix, problems=(*entry.problems, *problems))
        for entry in entries
    ]


def _with_orphans(files: Iterable[CatalogEntry], streams: Iterable[Stream]) -> list[CatalogEntry]:
    entries = {entry.name: entry for entry in files}
    owned = {stream for entry in entries.values() for stream in entry.streams}
    for stream in streams:
        if stream in owned:
            continue
        owners = [entry.name for entry in entries.values() if _is_of(entry, stream)]
        # A file of another pipeline may have this name: its DAG is not this stream's.
        if not owners and stream.pipeline not in entries:
            entries[stream.pipeline] = CatalogEntry(stream.pipeline, (stream,))
        # Several files can have generations of one pipeline, and each shows the orphans.
        for name in owners:
            entries[name] = replace(entries[name], streams=(*entries[name].streams, stream))
    return sorted(entries.values(), key=lambda entry: entry.name)


def _is_of(entry: CatalogEntry, stream: Stream) -> bool:
    return any(own.pipeline == stream.pipeline for own in entry.streams)


def _stamp(folder: Path) -> Stamp:
    """Return a value that changes if a file changes."""
    if not folder.is_dir():
        return ()
    with os.scandir(folder) as files:
        return tuple(sorted((file.name, *_version(file)) for file in files if file.name.endswith(".yaml")))


def _version(file: os.DirEntry[str]) -> tuple[int, int]:
    """Return the time and size of a file, which change with it."""
    try:
        status = file.stat()
    except OSError:  # a link to nothing, or a file that was removed just now: loading it shows the reason
        return 0, 0
    # Both: some file systems have times of whole seconds, in which a file can change twice.
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _defaults(folder: Path, _: Stamp) -> tuple[str, tuple[Problem, ...]]:
    """Return the prefix of DAG ids, and the mistakes in the defaults, with which the prefix is ""."""
    try:
        return load_defaults(folder).dag_id_prefix, ()
    except PipelineInvalid as error:
        return "", tuple(error.problems)


@lru_cache(maxsize=4)
def _files(folder: Path, _: Stamp) -> tuple[CatalogEntry, ...]:
    pipelines, errors = load_pipelines(folder)
    good = [CatalogEntry(name, (stream_of(loaded),), loaded) for name, loaded in pipelines.items()]
    return (*good, *map(_broken, errors))


def _broken(error: PipelineInvalid) -> CatalogEntry:
    file = error.problems[0].file
    names = stream_in_broken_file(file)
    if names is None:
        return CatalogEntry(Path(file).stem, (), problems=tuple(error.problems))
    pipeline, generation = names
    return CatalogEntry(
        Path(file).stem,
        # A guess, marked by `has_generation`: the file's generation cannot be read.
        (Stream(pipeline, generation or 1),),
        problems=tuple(error.problems),
        has_generation=generation is not None,
    )


@dataclass(frozen=True)
class Tried:
    """The result of a dry run of `plan` just now: its error, or None. It is newer than the failure in the
    ledger.
    """

    error: TidegateError | None = None


def stream_condition(
    app: App, stream: Stream, lag: int | None = None, tried: Tried | None = None
) -> StreamCondition:
    """Return the condition of a stream now.

    Args:
        lag: In offsets; None if it is unknown.
        tried: The result of a dry run, which replaces the recorded failure of `plan`.

    Raises LedgerUnavailable.
    """
    (facts,) = with_files(app, read_facts(app.ledger, [stream]).values())
    facts, now_ms = replace(facts, lag=lag), current_ms()
    return derive_condition(_with_try(facts, tried, now_ms) if tried is not None else facts, now_ms)


def stream_conditions(app: App, lags: Mapping[Stream, int | None]) -> dict[Stream, StreamCondition]:
    """Return the conditions of many streams now, by as many queries as for one.

    Args:
        lags: Each stream with its lag in offsets; None if it is unknown.

    Raises LedgerUnavailable.
    """
    return conditions_of(with_files(app, read_facts(app.ledger, list(lags)).values()), lags)


def conditions_of(
    facts: Iterable[StreamFacts], lags: Mapping[Stream, int | None]
) -> dict[Stream, StreamCondition]:
    """Return the conditions that follow from the facts of streams, with their lags."""
    now_ms = current_ms()
    return {
        recorded.stream: derive_condition(replace(recorded, lag=lags.get(recorded.stream)), now_ms)
        for recorded in facts
    }


def troubled_streams(app: App) -> set[Stream]:
    """Return the streams whose condition requires a person, without asking Kafka.

    Only streams with a recorded failure, a clock that is ahead or an old open plan are examined. Raises
    LedgerUnavailable.
    """
    candidates, now_ms = set(app.ledger.failing_streams()), current_ms()
    stalled_before = now_ms / 1000 - STALLED_AFTER.total_seconds()
    for status in app.ledger.stream_statuses(app.ledger.streams()):
        # Until a clock in the future has passed, windows and time limits end too early.
        is_ahead = max(status.head.clocks.values(), default=-1) > now_ms + CLOCK_AHEAD_MS
        if is_ahead or (status.planned_at is not None and status.planned_at <= stalled_before):
            candidates.add(status.stream)
    conditions = stream_conditions(app, dict.fromkeys(candidates))
    return {stream for stream, condition in conditions.items() if condition.is_troubled}


def with_files(app: App, facts: Iterable[StreamFacts]) -> list[StreamFacts]:
    """Return the facts of streams with those of their pipeline files."""
    by_pipeline: dict[str, list[CatalogEntry]] = defaultdict(list)
    for entry in catalog_entries(app):
        for own in entry.streams[:1]:
            by_pipeline[own.pipeline].append(entry)
    return [_with_file(recorded, by_pipeline[recorded.stream.pipeline]) for recorded in facts]


def _with_file(facts: StreamFacts, entries: Sequence[CatalogEntry]) -> StreamFacts:
    """Return the facts of a stream with those of its file. `entries`: those of its pipeline."""
    files = [entry for entry in entries if entry.is_file_of(facts.stream)]
    in_charge = Stream(facts.stream.pipeline, facts.in_charge or facts.stream.generation)
    is_read = any(entry.is_file_of(in_charge) for entry in entries)
    # A file without mistakes has the stream, whatever stray copies there are. Two files of one generation are
    # both refused, with the same cause.
    owner = min(files, key=lambda entry: entry.pipeline is None, default=None)
    mistakes = [str(problem) for problem in owner.problems] if owner is not None else []
    mistake = "; ".join(mistakes)
    facts = replace(facts, has_file=bool(files), file_mistake=mistake, is_read_in_charge=is_read)
    if owner is None or owner.pipeline is None:
        return facts
    # The file's, and not that of the last plan: Airflow starts runs by the file as it is now.
    return replace(facts, schedule_gap=longest_schedule_gap(owner.pipeline.schedule))


def _with_try(facts: StreamFacts, tried: Tried, now_ms: int) -> StreamFacts:
    # The dry run has just repeated these steps, so their older failures no longer count.
    noted = [failure for failure in facts.failures if failure.step not in ("start", "plan")]
    error, seq = tried.error, facts.status.head.seq + 1 if facts.status is not None else 1
    # A later step may have failed for the same reason; one cause is shown once.
    if error is not None and type(error).__name__ not in {failure.error for failure in noted}:
        names = type(error).__name__, error.what, error.fix
        noted.append(Failure(facts.stream, seq, "plan", *names, now_ms))
    return replace(facts, failures=tuple(noted))
