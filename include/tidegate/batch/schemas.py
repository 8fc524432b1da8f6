"""The schemas of a registry, as a plan keeps them."""

from __future__ import annotations

from tidegate.app.root import App
from tidegate.errors import SchemaRefused, SchemaUnknown
from tidegate.formats.registry import language_of
from tidegate.formats.schemas import SchemaFault, SourceSchemas, WriterSchema
from tidegate.kafka.registry import SchemaRegistry, SubjectVersion
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.schemas import Registry
from tidegate.model.source import Source
from tidegate.model.sources import Sources

PlannedWriters = dict[tuple[str, int], WriterSchema]
"""(subject, version) -> the schema that the previous batch was planned with."""


def with_writers(app: App, pipeline: Pipeline, before: Plan | None, reads: bool) -> Pipeline:
    """The pipeline with all versions of the subjects of its sources' values and keys. `reads`: whether the
    batch has records.

    It has to be asked for after the ends of the batch are fixed: who wrote a record before them had its
    schema registered before that. So no record of the batch needs a schema that the plan does not have, and
    neither a worker nor a retry asks the registry again. A batch without records does not ask at all.

    What an id means never changes, so of the versions that the batch before has, only the newest is asked for
    again. If that is another one, all are: a subject that was deleted for good begins anew with the same
    numbers, and another registry has other schemas under them.

    Raises RegistryUnavailable, SettingsInvalid, SchemaUnknown when there is no such subject, SchemaRefused
    for a schema that is none.
    """
    if not pipeline.sources.registries:
        return pipeline
    earlier = planned_pipeline(before).sources if before is not None else {}
    sources = {
        name: _with_writers(app, source, earlier.get(name), reads)
        for name, source in pipeline.sources.items()
    }
    return pipeline.with_sources(Sources(sources))


def _with_writers(app: App, source: Source, earlier: Source | None, reads: bool) -> Source:
    if not source.registries:
        return source
    planned = (earlier.schemas, earlier.key_schemas) if earlier is not None else (SourceSchemas(),) * 2
    writers = _writers(app, source.registry, source.subjects, _planned_writers(planned[0]), reads)
    of_keys = _writers(app, source.key_registry, source.key_subjects, _planned_writers(planned[1]), reads)
    return source.with_writers(writers, of_keys)


def _writers(
    app: App, registry: Registry | None, subjects: tuple[str, ...], planned: PlannedWriters, reads: bool
) -> tuple[WriterSchema, ...] | None:
    """Return the writers' schemas of values, or of keys; None if they are in no registry."""
    if registry is None:
        return None
    if not reads:
        return tuple(planned.values())
    with SchemaRegistry(app.settings.registry(registry.connection)) as client:
        writers = [writer for subject in subjects for writer in _versions(client, subject, planned)]
    if not writers:
        raise SchemaUnknown(
            f"The schema registry at {client.config.url} has none of the subjects {', '.join(subjects)}",
            "Check `registry:` (of keys `key_registry:`) in the pipeline file: the `strategy` is that of the "
            "producers, or name the `subjects`.",
        )
    return tuple(writers)


def _planned_writers(schemas: SourceSchemas) -> PlannedWriters:
    return {(writer.subject, writer.version): writer for writer in schemas.writers or ()}


def _versions(client: SchemaRegistry, subject: str, planned: PlannedWriters) -> list[WriterSchema]:
    """Return all versions of a subject. Those of the batch before are reused if its newest is the same."""
    # A version that was deleted softly still has records in the topic.
    numbers = client.versions(subject, with_deleted=True)
    earlier = [number for number in numbers if (subject, number) in planned]
    writers: dict[int, WriterSchema] = {}
    if earlier:
        newest = earlier[-1]
        writers[newest] = _pinned(client, client.version(subject, newest))
        # Another one: of another registry, or of a subject that was deleted for good and registered anew.
        if writers[newest] == planned[subject, newest]:
            writers |= {number: planned[subject, number] for number in earlier}
    return [
        writers[number] if number in writers else _pinned(client, client.version(subject, number))
        for number in numbers
    ]


def _pinned(client: SchemaRegistry, version: SubjectVersion) -> WriterSchema:
    schema = version.schema
    try:
        pinned = language_of(schema.kind).pin(schema.text, dict(schema.imports))
    except SchemaFault as fault:
        raise SchemaRefused(
            f"Version {version.version} of {version.subject} in the schema registry at {client.config.url} "
            f"cannot be used: {fault}",
            "Delete the version there if nothing was written by it, or name other `subjects`.",
        ) from None
    return WriterSchema(version.subject, version.version, version.id, pinned)
