"""The model of a sink: what a pipeline file says about it, and the facts that other code needs.

Each kind has its own fields in `sinks/KIND/model.py`. Nothing here and there imports a client library.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictBool
from pydantic import ValidationInfo as Info

from tidegate.formats.schemas import Payload
from tidegate.model.connection import Connection
from tidegate.model.mistakes import did_you_mean, listed, mistake
from tidegate.model.scope import Model, StageScope, scope_of
from tidegate.stage_names import late_name


def stage_of(info: Info) -> StageScope:
    """Return the facts about the stage of the sink; an empty scope if the stage is unknown."""
    scope = scope_of(info)
    name = info.data.get("stage", "")
    candidates = scope.stages[-1:] if name is None else [part for part in scope.outlets if part.name == name]
    return candidates[0] if candidates else StageScope()


def _check_stage(name: str | None, info: Info) -> str | None:
    stages = [stage.name for stage in scope_of(info).outlets if stage.name]
    if name is not None and stages and name not in stages:
        owner = name.removesuffix(late_name(""))
        if owner != name and owner in stages:
            fix = f"Write `on_late: emit` at the stage `{owner}`."
            raise mistake(f"the stage `{owner}` does not emit its late records", fix)
        raise mistake(f"there is no stage `{name}`", did_you_mean(name, stages, f"Write {listed(stages)}."))
    return name


def _check_with_key(with_key: bool, info: Info) -> bool:
    if with_key and stage_of(info).keys == {}:
        fix = "Name the key's columns in `source.key`, or leave `with_key` out."
        raise mistake("there are no key columns to put into the value", fix)
    return with_key


def not_a_source(topic: str, info: Info) -> str:
    """Raise a mistake if a topic is also a source by its name and connection.

    Two connections can be the same cluster. The ids of the topics show that when a batch is planned.
    """
    scope = scope_of(info)
    connection = scope.source.connection
    if scope.reads(topic) and info.data.get("connection", connection) == connection:
        fix = "Use another topic, or a pattern that does not match it."
        raise mistake(f"`{topic}` is also a source: the pipeline would read itself", fix)
    return topic


def one_row_per_key(mode: str, info: Info) -> str:
    """Refuse other modes than `append` where rows would replace each other: for collected events, or windows
    that share a key. Raises a mistake that names what would be lost.
    """
    if mode == "append":
        return mode
    if stage_of(info).collects:
        fix = "Use `mode: append`: what `reduce: collect` gathers, or a late record, is a row of its own."
        loses = (
            "leave out events after the first"
            if mode == "insert_ignore"
            else "overwrite events that were sent before"
        )
        raise mistake(f"`{mode}` would {loses}", fix)
    if stage_of(info).drops_window:
        fix = (
            "Give the stage the window, too; name its `key:`, if you want one row for each key; or write "
            "`mode: append`."
        )
        what = "the stage has no window, but an earlier one has: rows of a key's windows overwrite each other"
        raise mistake(what, fix)
    return mode


def check_columns(table: str, own: Mapping[str, str], info: Info) -> None:
    """Refuse emitted columns that a table has already, and key columns that differ from them in case only.

    Args:
        table: The kind of table, for the message.
        own: Column that each such table has -> its content.
        info: The validation of a field behind `with_key`.
    """
    stage = stage_of(info)
    taken = {name: f": {meaning}" for name, meaning in own.items()}
    for name in sorted({*(stage.emitted or {}), *((stage.keys or {}) if info.data.get("with_key") else {})}):
        if (other := taken.get(name.lower())) is not None:
            what = f"the column `{name}` is emitted, but the {table} has a column of that name{other}"
            raise mistake(what, f"`select` it under another name, such as `event_{name}`.")
        # Also against each other: Delta, Iceberg's readers and most databases ignore case in names.
        taken[name.lower()] = f", `{name}`"


WithKey = Annotated[StrictBool, AfterValidator(_check_with_key)]
StageName = Annotated[str | None, AfterValidator(_check_stage)]


Treatment = Literal["halt", "quarantine"]
"""The treatment of an emission that a sink would refuse: the batch halts, or the emission goes into
quarantine.
"""


@dataclass(frozen=True)
class MessageRules:
    """The facts about a sink of messages that computing a batch needs.

    Values, and keys that are not text, are encoded while the batch is computed. Messages that the sink would
    refuse are found then.

    Args:
        target: The name by which a plan stores the timestamps that the sink accepts.
        payload: The encoding of values.
        key: The encoding of keys; None if they are text.
        too_large: The treatment of messages that are too large.
        refused_timestamp: The treatment of messages with a timestamp that the topic does not accept.
        headers: Name of a header -> the column that it has.
        timestamp: The column of the outbox with the timestamps of messages; None: they have the clock.
    """

    target: str
    payload: Payload
    key: Payload | None
    too_large: Treatment
    refused_timestamp: Treatment
    headers: Mapping[str, str]
    timestamp: str | None


class SinkModel(Model):
    """The fields and properties of every kind of sink.

    A kind declares here what other code needs to know about it, so that no other code asks for the kind.
    """

    examples: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Field -> how it is written in a pipeline file. Parts of a field have a dotted path."""
    publisher: ClassVar[str]
    """The module whose `SINK` publishes to it. It is imported late: only some processes need client
    libraries.
    """
    takes_null_keys: ClassVar[bool] = False
    """Whether an emission may be without a key."""
    target_field: ClassVar[str]
    """The field that names the sink's target, which `tidegate init` writes."""

    stage: StageName = Field(
        default=None, description="The stage whose emissions it gets. Null: the last one."
    )
    with_key: WithKey = Field(default=False, description="Whether the key's columns are in the value, too.")

    @classmethod
    def new_target(cls, pipeline: str) -> str:
        """Return the target that `tidegate init` suggests for a new pipeline."""
        return pipeline

    @property
    @abstractmethod
    def name(self) -> str:
        """A name that is unique in the pipeline, such as `kafka:stock`.

        It must never change: progress has it as key.
        """

    @property
    def messages(self) -> MessageRules | None:
        """The rules of its messages; None if it writes columns and not messages."""
        return None

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that must be set to use it."""
        return ()

    @property
    def is_per_generation(self) -> bool:
        """Whether each generation has a target of its own, though the sink's name is the same."""
        return False

    @property
    def lake_folder(self) -> str | None:
        """The folder below the lake that its path names; None if there is none, or if it is the
        generation's own.
        """
        return None
