"""The `table` sink in a pipeline file: a Delta table in the lake, or elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.model.mistakes import mistake
from tidegate.model.scope import scope_of
from tidegate.sinks.model import SinkModel, check_columns

OWN_COLUMNS = {"reason": "the reason", "seq": "the batch"}
"""Column that each table of such a sink has beside those that every outbox has -> its content."""
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*")
_LONGEST_TABLE_PATH = 300  # the ledger stores it as part of the sink's name


def _check_name(path: str) -> str:
    """Return the path of a table if it is relative to the lake or absolute, without `..`.

    Raises a mistake otherwise.
    """
    if len(path) > _LONGEST_TABLE_PATH:
        fix = f"Use at most {_LONGEST_TABLE_PATH}."
        raise mistake(f"the path of a table has {len(path)} characters: {path[:40]}…", fix)
    if _TABLE.fullmatch(path.removeprefix("/")):
        return path
    fix = "Write a name under the lake such as `out/availability`, or an absolute path, without `..`."
    raise mistake(f"{path!r} is not a path that can be used", fix)


def _check_path(path: str, info: Info) -> str:
    """Refuse a path in the pipeline's own folder: a vacuum of the table would delete its state and
    manifests.
    """
    if first_folder(path) == scope_of(info).pipeline:
        what = f"`{path}` is in the lake's folder of this pipeline, or is that folder"
        raise mistake(what, f"Write another name, such as `out/{path}`, or leave `path` out.")
    return path


def _check_columns(path: str | None, info: Info) -> str | None:
    """Refuse emitted columns that the table has already."""
    check_columns("Delta table", OWN_COLUMNS, info)
    return path


def first_folder(path: str | None) -> str | None:
    """Return the folder below the lake that a relative path is in; None for an absolute one.

    Example: `first_folder("out/stock")` is `out`, `first_folder("/mnt/stock")` is None.
    """
    return None if path is None or path.startswith("/") else path.partition("/")[0]


class TableSink(SinkModel):
    """A sink that appends emissions to a Delta table: a name in the lake, an absolute path, or the
    default place.
    """

    examples: ClassVar[Mapping[str, str]] = {"path": "path: availability"}
    publisher = "tidegate.sinks.table.sink"
    target_field = "path"

    kind: Literal["table"] = Field(description="A Delta table.")
    path: Annotated[
        Annotated[str, AfterValidator(_check_name), AfterValidator(_check_path)] | None,
        AfterValidator(_check_columns),
    ] = Field(
        default=None,
        description="A name under the lake, or an absolute path. Null: the lake's place, per generation.",
    )

    @classmethod
    def new_target(cls, pipeline: str) -> str:
        """Return a path outside of the pipeline's own folder."""
        return f"out/{pipeline}"

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"table:{self.path}" if self.path else "table"

    @property
    def is_per_generation(self) -> bool:
        """A table without a path is in the generation's own folder."""
        return self.path is None

    @property
    def lake_folder(self) -> str | None:
        """The folder below the lake that its path is in."""
        return first_folder(self.path)


MODEL = TableSink
