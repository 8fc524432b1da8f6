"""`sinks`: where emissions go. Each kind is a model of its own in `Sink`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool
from pydantic import ValidationInfo as Info

from tidegate.spec import names
from tidegate.spec.mistakes import did_you_mean, listed, mistake
from tidegate.spec.scope import Model, Topic, scope_of


def _known_stage(name: str | None, info: Info) -> str | None:
    stages = scope_of(info).stages
    if name is not None and stages and name not in stages:
        raise mistake(f"there is no stage `{name}`", did_you_mean(name, stages, f"Write {listed(stages)}."))
    return name


def _needs_key(with_key: bool, info: Info) -> bool:
    if with_key and scope_of(info).key == ():
        fix = "Name the key's columns in `source.key`, or leave `with_key` out."
        raise mistake("there are no key columns to put into the value", fix)
    return with_key


def _not_a_source(topic: str, info: Info) -> str:
    if topic in scope_of(info).topics:
        raise mistake(f"`{topic}` is also a source: the pipeline would read itself", "Use another topic.")
    return topic


WithKey = Annotated[StrictBool, AfterValidator(_needs_key)]
OfStage = Annotated[str | None, AfterValidator(_known_stage)]


class KafkaSink(Model):
    """Emissions go to a topic; with `with_key` the key columns are in the value too."""

    kind: Literal["kafka"]
    topic: Annotated[Topic, AfterValidator(_not_a_source)]
    with_key: WithKey = False
    stage: OfStage = None

    @property
    def name(self) -> str:
        """Unique in the pipeline."""
        return f"kafka:{self.topic}"


class TableSink(Model):
    """Emissions go to a table: a name under the lake, an absolute path, or where the lake puts it."""

    kind: Literal["table"]
    path: Annotated[str, AfterValidator(names.check_table_path)] | None = None
    with_key: WithKey = False
    stage: OfStage = None

    @property
    def name(self) -> str:
        """Unique in the pipeline."""
        return f"table:{self.path}" if self.path else "table"


def _unique(sink: KafkaSink | TableSink, info: Info) -> KafkaSink | TableSink:
    scope = scope_of(info)
    if sink.name in scope.sinks:
        raise mistake(f"there are two sinks `{sink.name}`", "Keep one, or send one elsewhere.")
    scope.sinks.append(sink.name)
    return sink


Sink = Annotated[Annotated[KafkaSink | TableSink, Field(discriminator="kind")], AfterValidator(_unique)]
