"""The catalog of pipelines: those in the folder's files, and generations that only the ledger has."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tidegate.app.root import App, stream_of
from tidegate.errors import PipelineInvalid, Problem
from tidegate.ledger import Stream
from tidegate.spec import Pipeline, load_defaults, load_pipelines, stream_in_broken_file

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class CatalogEntry:
    """The subject of one DAG.

    Args:
        name: The name of the file without .yaml; or of the pipeline, if no file has a generation of it.
        streams: First the file's own stream, then generations of its pipeline that no file has any more. A
            stream may never have been planned.
        pipeline: None if the file has mistakes, or if there is no file.
        problems: The mistakes of the file.
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
        if self.pipeline is None and not self.problems:
            return False
        own = self.streams[:1]
        return own == (stream,) or (not self.has_generation and own[0].pipeline == stream.pipeline)

    @property
    def dag_id(self) -> str:
        """The id of its DAG in Airflow."""
        return self.dag_id_prefix + self.name


def catalog_entries(app: App) -> list[CatalogEntry]:
    """Return all entries by name. A folder whose files have not changed is not parsed again.

    Raises LedgerUnavailable.
    """
    folder = app.settings.pipelines
    # parsing is cached by this stamp, since a page reads the catalog for each request
    stamp = _stamp(folder)
    entries = _with_orphans(_files(folder, stamp), app.ledger.streams())
    prefix = _dag_id_prefix(folder, stamp)
    return [replace(entry, dag_id_prefix=prefix) for entry in entries] if prefix else entries


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
    stats = [(path.name, path.stat()) for path in sorted(folder.glob("*.yaml"))]
    # Both: some file systems have times of whole seconds, in which a file can change twice.
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


@lru_cache(maxsize=4)
def _dag_id_prefix(folder: Path, _: Stamp) -> str:
    """Return the prefix of DAG ids; "" if the defaults have mistakes, since there is no DAG then."""
    with suppress(PipelineInvalid):
        return load_defaults(folder).dag_id_prefix
    return ""


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
