"""`schema`, `message` and `registry` of a source: the schemas that its records are written and read by.

Schema files are beside the pipeline file. They are read with it, and a plan stores their content.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.expressions.arrow import type_of
from tidegate.formats.protobuf.schema import ProtoSchema
from tidegate.formats.registry import formats
from tidegate.formats.schemas import PinnedSchema, SchemaFault
from tidegate.model import names
from tidegate.model.columns import Column, arrow_schema
from tidegate.model.connection import Connection
from tidegate.model.mistakes import did_you_mean, listed, mistake
from tidegate.model.scope import Model, distinct, require_filled, scope_of

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_check_subject = names.matching(
    re.compile(r"[^\s/\\\x00-\x1f]{1,249}"), "is not a subject's name", "Write for example `stock-value`."
)
_MESSAGE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_IMPORT = re.compile(r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;', re.MULTILINE)
_MOST_BYTES = 1_000_000


class Registry(Model):
    """The subjects of a schema registry that have the records' schemas. Its URL is set where tidegate runs.

    `strategy` is the naming strategy of the producers: subjects are named by the topic, the record, or both.
    `subjects` lists them instead.
    """

    connection: Annotated[str, AfterValidator(names.check_connection)] | None = Field(
        default=None, description="The registry, by its connection's name. Null: the one without a name."
    )
    strategy: Literal["topic_name", "record_name", "topic_record_name"] = Field(
        default="topic_name", description="How the producers name subjects: by topic, record, or both."
    )
    subjects: Annotated[
        tuple[Annotated[str, AfterValidator(_check_subject)], ...] | None,
        BeforeValidator(require_filled),
        AfterValidator(lambda subjects: subjects and distinct(subjects)),
    ] = Field(default=None, description="The names of the subjects, instead of those by `strategy`.")

    @property
    def cluster(self) -> Connection:
        """The connection of the registry."""
        return Connection("registry", self.connection)

    def subjects_of(
        self, topics: tuple[str, ...], record: str | None, part: str = "value"
    ) -> tuple[str, ...]:
        """Return the subjects of topics.

        Args:
            topics: The topics.
            record: The full name of the record, which some strategies need.
            part: `value` or `key`.

        Example: `("stock-value",)` for the topic `stock` by `topic_name`.
        """
        if self.subjects is not None:
            return self.subjects
        if self.strategy == "topic_name":
            return tuple(f"{topic}-{part}" for topic in topics)
        record = record or ""
        return (record,) if self.strategy == "record_name" else tuple(f"{topic}-{record}" for topic in topics)


# the file


def read_schema_file(name: str | None, info: Info) -> str | None:
    """Read a schema file beside the pipeline file, and note its content in the scope. Returns the name.

    Raises a mistake if the format has no schema file, or if the file is missing or not a schema.
    """
    format_ = info.data.get("format")
    if name is None or format_ is None:
        return name
    language = formats()[format_].language
    if language is None:
        fix = "Leave it out, or write `format: json`, `avro` or `protobuf`."
        raise mistake(f"`format: {format_}` has no schema file", fix)
    path = schema_path(name, format_, language.endings, scope_of(info).folder)
    require_schema_file(name, path)
    try:
        scope_of(info).source.reader = language.read(path)
    except SchemaFault as fault:
        raise mistake(f"{name}: {fault}", "Correct the schema; tidegate guesses nothing.") from None
    return name


def schema_path(name: str, format_: str, endings: tuple[str, ...], folder: Path | None) -> Path:
    """Return the path of a schema file, which is relative to the pipeline's folder.

    Raises a mistake for a path with another ending than `endings`, or one that leads out of the folder.
    """
    if not _PATH.fullmatch(name) or Path(name).suffix not in endings:
        raise mistake(
            f"{name!r} is not a schema file of {format_}",
            f"Write its path from the pipeline's folder, such as `schemas/stock{endings[0]}`: it ends with "
            f"{' or '.join(endings)}.",
        )
    return (folder or Path()) / name


def require_schema_file(name: str, path: Path) -> None:
    """Raise a mistake if there is no such file."""
    if not path.is_file():
        fix = "Put it there, or correct the path, which begins at the folder of the pipeline file."
        existing = sorted(other.name for other in path.parent.glob(f"*{path.suffix}"))
        raise mistake(f"there is no file {name!r}", did_you_mean(path.name, existing, fix))


# the message


def check_message(name: str | None, info: Info) -> str | None:
    """Return the message of the schema file: the named one, or the only one.

    Raises a mistake if there is none.
    """
    format_, reader = info.data.get("format"), scope_of(info).source.reader
    if format_ is None or "schema_file" not in info.data:
        return name
    language = formats()[format_].language
    if language is None or language.messages is None:
        if name is not None:
            raise mistake(f"`format: {format_}` has no messages", "Leave `message` out.")
        return name
    if name is not None and not _MESSAGE.fullmatch(name):
        raise mistake(f"{name!r} is not a message's name", "Write it in full, such as `shop.Stock`.")
    return name if reader is None else message_of(language.messages(reader.text), name)


def message_of(schema: ProtoSchema, name: str | None) -> str:
    """Return the full name of a file's message: the named one, or the only one.

    Raises a mistake if there is none.

    Example: `message_of(schema, None)` is `shop.Stock` if the file has only that message.
    """
    if name is None and len(schema.top) == 1:
        return schema.top[0]
    fix = f"Write one of {listed(schema.top)} as `message:`." if schema.top else "Name another file."
    if name is None:
        raise mistake("the file has several messages, and `message` does not name one", fix)
    if name not in schema.messages:
        raise mistake(f"there is no message `{name}` in the file", did_you_mean(name, schema.messages, fix))
    return name


# the registry


def check_registry(registry: Registry | None, info: Info) -> Registry | None:
    """Check that a registry, a schema file or both are given if the format needs them.

    Returns the registry.
    """
    format_ = info.data.get("format")
    if format_ is None or "schema_file" not in info.data:
        return registry
    language = formats()[format_].language
    if language is None:
        if registry is not None:
            raise mistake(f"`format: {format_}` has no schemas", "Leave `registry` out.")
        return registry
    if formats()[format_].needs_schema and registry is None and info.data["schema_file"] is None:
        example = f"schema: schemas/stock{language.endings[0]}"
        raise mistake(
            f"`format: {format_}` needs a schema", f"Write `{example}`, or `registry: {{}}` for a registry's."
        )
    if registry is not None and registry.subjects is None and registry.strategy != "topic_name":
        _check_record(registry, info)
    return registry


def _check_record(registry: Registry, info: Info) -> None:
    if record_name(info.data["format"], scope_of(info).source.reader, info.data.get("message")) is None:
        raise mistake(
            f"`strategy: {registry.strategy}` needs the record's name",
            "Write the reader's `schema:` beside it, of Protobuf `message:`, or name the `subjects`.",
        )


def record_name(format_: str, reader: PinnedSchema | None, message: str | None) -> str | None:
    """Return the full name of the records that are read, as a registry's subjects have it; None if
    unknown.

    Args:
        format_: A format that can have schemas.
        reader: The reader's schema; None if the source has no schema file.
        message: The message in the schema; None if the schema describes one record only.
    """
    language = formats()[format_].language
    if reader is None or language is None or language.messages is not None:
        return message
    return language.record_name(reader)


# the columns


def schema_columns(written: tuple[Column, ...] | None, info: Info) -> tuple[Column, ...]:
    """Return the written columns, if the schema has them; without written columns, all columns of the schema
    file.

    Raises a mistake if the schema does not have a column, or if a field of it cannot be a column.
    """
    format_, reader = info.data["format"], scope_of(info).source.reader
    if reader is None:
        if written is None and info.data.get("registry") is not None:
            raise mistake(
                "a registry alone does not determine the columns: it may have other versions tomorrow",
                "Write `columns:`, or the reader's schema as a file beside the pipeline: `schema:`.",
            )
        return written or ()
    if "message" not in info.data:
        return written or ()  # its mistake is reported already
    message, language = info.data["message"], formats()[format_].language
    assert language is not None, "the format has a schema"
    try:
        if written is None:
            fields = language.columns(reader, message or "")
            return tuple(_column(field.name, field.type) for field in fields)
        if language.check is not None:
            language.check(arrow_schema(written), reader, message)
    except SchemaFault as fault:
        fix = "Write `columns:` with the columns that you need, in the types of docs/json-and-csv.md."
        raise mistake(f"{fault}", fix) from None
    return written


def _column(name: str, type_: Any) -> Column:
    return Column(name=names.check_column(name), type=type_of(type_).text)
