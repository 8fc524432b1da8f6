"""The schemas of a registry, as a plan keeps them."""

from __future__ import annotations

from tidegate.app.root import App
from tidegate.broker.registry import SchemaRegistry, SubjectVersion
from tidegate.errors import SchemaRefused, SchemaUnknown
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.pinned import PinnedSchema, WriterSchema, pin_avro, pin_json_schema, pin_protobuf
from tidegate.spec import Pipeline

Known = dict[tuple[str, int], WriterSchema]
"""By subject and version those that the batch before was planned with."""


def with_writers(app: App, pipeline: Pipeline, before: Plan | None, reads: bool) -> Pipeline:
    """The pipeline with all versions of its source's subjects. `reads`: whether the batch has records.

    It has to be asked for after the ends of the batch are fixed: who wrote a record before them had its
    schema registered before that. So no record of the batch needs a schema that the plan does not have, and
    neither a worker nor a retry asks the registry again. A batch without records does not ask at all.

    What an id means never changes, so of the versions that the batch before has, only the newest is asked for
    again: a subject that was deleted for good begins anew with the same numbers.

    Raises RegistryUnavailable, SettingsInvalid, SchemaUnknown when there is no such subject, SchemaRefused
    for a schema that is none.
    """
    registry = pipeline.source.registry
    if registry is None:
        return pipeline
    known = _known(before)
    if not reads:
        return _with(pipeline, tuple(known.values()))
    with SchemaRegistry(app.settings.registry(registry.connection)) as client:
        writers = [
            writer for subject in pipeline.source.subjects for writer in _versions(client, subject, known)
        ]
    if not writers:
        subjects = ", ".join(pipeline.source.subjects)
        raise SchemaUnknown(
            f"The schema registry at {client.config.url} has none of the subjects {subjects}",
            "Check `registry:` in the pipeline file: the `strategy` is that of the producers, or name the "
            "`subjects`.",
        )
    return _with(pipeline, tuple(writers))


def _with(pipeline: Pipeline, writers: tuple[WriterSchema, ...]) -> Pipeline:
    return pipeline.model_copy(update={"source": pipeline.source.with_writers(writers)})


def _known(before: Plan | None) -> Known:
    if before is None:
        return {}
    writers = planned_pipeline(before).source.schemas.writers or ()
    return {(writer.subject, writer.version): writer for writer in writers}


def _versions(client: SchemaRegistry, subject: str, known: Known) -> list[WriterSchema]:
    numbers = client.versions(subject, with_deleted=True)
    return [
        known[subject, number]
        if (subject, number) in known and number != numbers[-1]
        else _pinned(client, client.version(subject, number))
        for number in numbers
    ]


def _pinned(client: SchemaRegistry, found: SubjectVersion) -> WriterSchema:
    schema = found.schema
    try:
        pinned = _pin(schema.kind, schema.text, dict(schema.imports))
    except SchemaFault as fault:
        raise SchemaRefused(
            f"Version {found.version} of {found.subject} in the schema registry at {client.config.url} "
            f"cannot be used: {fault}",
            "Delete the version there if nothing was written by it, or name other `subjects`.",
        ) from None
    return WriterSchema(found.subject, found.version, found.id, pinned)


def _pin(kind: str, text: str, imports: dict[str, str]) -> PinnedSchema:
    if kind == "JSON":
        return pin_json_schema(text, imports)
    return pin_avro(text, imports) if kind == "AVRO" else pin_protobuf(text, imports)
