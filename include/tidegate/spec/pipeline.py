"""A pipeline file as a whole. How its mistakes are told is in `told`; what is not built yet, in `grammar`."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, field_validator
from pydantic import ValidationInfo as Info

from tidegate.spec import names
from tidegate.spec.airflow import AirflowSettings
from tidegate.spec.connection import Connection
from tidegate.spec.dead_letters import DeadLetterTopic
from tidegate.spec.durations import Duration
from tidegate.spec.intervals import UTC, check_timezone, read_start_date
from tidegate.spec.lookup import Lookup
from tidegate.spec.mistakes import mistake
from tidegate.spec.quality import AnyCheck, Quality, QualityCheck
from tidegate.spec.quarantine import LateRule, QuarantineRule
from tidegate.spec.schedule import AssetSchedule, Schedule
from tidegate.spec.scope import Model, filled, scope_of
from tidegate.spec.sinks import Sink, SinkModel
from tidegate.spec.source import Source
from tidegate.spec.stage import Stage


def _read_start_date(written: Any, info: Info) -> Any:
    return read_start_date(written, info.data.get("timezone", UTC))


def _since_when(catchup: bool, info: Info) -> bool:
    schedule = info.data.get("schedule")
    if catchup and isinstance(schedule, AssetSchedule) and schedule.cron is None:
        fix = "Leave it out: a run reads all that is there. Or write `cron:` beside the assets."
        raise mistake("`catchup: true` makes up for intervals, and assets have none", fix)
    if catchup and "start_date" in info.data and info.data["start_date"] is None:
        fix = "Write `start_date: 2026-01-31` beside it: the first interval begins there."
        raise mistake("`catchup: true` does not say since when", fix)
    return catchup


def _note_name(name: str, info: Info) -> str:
    scope_of(info).pipeline = name
    return name


class Scheduling(Model):
    """Which stream a file is of, and how its batches are started: what a scheduler has to know of it.

    `schedule` is cron in `timezone`, or assets whose updates start a run, which reads all that is there.
    With `catchup`, intervals since `start_date` that have no run yet are made up for, one after the other;
    without, the newest is enough, since a run reads all that is left.
    A run that is not through so long after it was queued as `deadline` says is told of.

    What is excluded is of the DAG and not of a batch: plans do not keep it.
    """

    pipeline: Annotated[str, AfterValidator(names.check_name), AfterValidator(_note_name)] = Field(
        description="The pipeline's name: its state, output and progress are kept under it."
    )
    generation: Annotated[StrictInt, Field(ge=1, lt=2**31)] = Field(
        default=1, description="Another number has a state, an output and a progress of its own."
    )
    start_over: StrictBool = Field(
        default=False,
        exclude=True,
        description="Whether it may send again what another generation or pipeline has sent to its sink.",
    )
    schedule: Schedule | None = Field(
        default=None,
        description="When runs start: cron in `timezone`, a preset, or assets. Null: only when triggered.",
    )
    timezone: Annotated[str, AfterValidator(check_timezone)] = Field(
        default=UTC, exclude=True, description="The IANA time zone that `schedule` is in."
    )
    start_date: Annotated[datetime | None, BeforeValidator(_read_start_date)] = Field(
        default=None,
        exclude=True,
        description="When the first interval begins: a day, or a time with a zone. Null: long ago.",
    )
    catchup: Annotated[StrictBool, AfterValidator(_since_when)] = Field(
        default=False,
        exclude=True,
        description="Whether intervals since `start_date` that had no run get one, in order.",
    )
    deadline_ms: Duration | None = Field(
        alias="deadline",
        default=None,
        exclude=True,
        description="A run that is not through so long after it was queued is told of.",
    )
    tasks: Literal["five", "one"] = Field(
        default="five",
        description="Airflow's tasks of a batch: one for each step, or a single one for all of them.",
    )
    airflow: AirflowSettings = Field(
        default=AirflowSettings(), exclude=True, description="How its DAG stands in Airflow."
    )


class Written(Scheduling):
    """A pipeline as it is written."""

    source: Source = Field(description="Which records are read, and what they are made of.")
    lookup: tuple[Lookup, ...] = Field(
        default=(), description="Columns that are added to each record from other tables."
    )
    stages: Annotated[tuple[Stage, ...], BeforeValidator(filled)] = Field(
        description="One or more; each but the first reads what the one before it emits."
    )
    sinks: tuple[Sink, ...] = Field(default=(), description="Where emissions go; at least one.")
    quality: Quality = Field(
        default=(),
        description="What a batch has to pass before it is committed: a suite, a checkpoint, or a list.",
    )
    quarantine: QuarantineRule | None = Field(
        default=None,
        description="How much of a batch may be unusable before it is told of, or stops; where it goes, too.",
    )
    late: LateRule | None = Field(
        default=None,
        description="How many records of a batch may be late, and dropped, before it is told of, or stops.",
    )

    @field_validator("stages")
    @classmethod
    def _applied_once(cls, stages: tuple[Stage, ...], info: Info) -> tuple[Stage, ...]:
        source = info.data.get("source")
        if stages[0].unchanged is not None and source is not None and source.deduplicate == "root":
            fix = "Leave `unchanged` out, or use another `deduplicate`."
            raise mistake(
                "`unchanged` does not go with `deduplicate: root`: a repetition could be filled in", fix
            )
        return stages

    @field_validator("quality")
    @classmethod
    def _nothing_refused(cls, written: tuple[AnyCheck, ...], info: Info) -> tuple[AnyCheck, ...]:
        checks = [check for each in written for check in each.checks]
        stages = info.data.get("stages") or ()
        partial = [stage.name for stage in stages if stage.unchanged is not None]
        refusing = [check for check in checks if check.on_failure == "quarantine"]
        if any((check.stage or stages[-1].name) in partial for check in refusing if stages):
            fix = "Use `on_failure: stop`, or compute what is checked in a stage after it."
            raise mistake("what quarantine takes out, the next record could not refer to (`unchanged`)", fix)
        return written

    @field_validator("sinks")
    @classmethod
    def _somewhere(cls, sinks: tuple[Any, ...], info: Info) -> tuple[Any, ...]:
        if not sinks and not scope_of(info).in_case:
            fix = "Write for example `sinks: [{kind: kafka, topic: availability}]`."
            raise mistake("a pipeline needs at least one sink", fix)
        return sinks


class Pipeline(Written):
    """A pipeline that has no mistakes. `text` is the whole file, as it was read."""

    text: str

    @property
    def hash(self) -> str:
        """SHA-256 of the text, in hex: any edit makes another hash."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that make up the key; none when the record's own key is used."""
        return self.source.key or ()

    @property
    def connections(self) -> tuple[Connection, ...]:
        """What has to be set for it, each once, the source's first."""
        of_sinks = [connection for sink in self.outputs for connection in sink.connections]
        registries = [registry.cluster for registry in self.source.registries]
        return tuple(dict.fromkeys([self.source.cluster, *registries, *of_sinks]))

    @property
    def checks(self) -> tuple[QualityCheck, ...]:
        """Its checks. Those of a checkpoint are among them once its files are read, as in a plan."""
        return tuple(check for each in self.quality for check in each.checks)

    @property
    def dead_letters(self) -> DeadLetterTopic | None:
        """Where what is put into quarantine goes, too."""
        return self.quarantine.dead_letters if self.quarantine is not None else None

    @property
    def outputs(self) -> tuple[SinkModel, ...]:
        """All that is published to: the sinks in the order of the file, then the topic of dead letters."""
        dead_letters = self.dead_letters
        return (*self.sinks, *([dead_letters] if dead_letters is not None else ()))

    def stage_of(self, sink: SinkModel) -> Stage:
        """The stage whose emissions a sink gets."""
        return next((each for each in self.stages if each.name == sink.stage), self.stages[-1])

    def checked_sink(self, check: QualityCheck) -> Sink | None:
        """The sink whose columns a check sees; None: it is of a stage."""
        return next((sink for sink in self.sinks if sink.name == check.sink), None)

    def checked_stage(self, check: QualityCheck) -> Stage:
        """The stage whose emissions or state a check looks at."""
        sink = self.checked_sink(check)
        if sink is not None:
            return self.stage_of(sink)
        return next((stage for stage in self.stages if stage.name == check.stage), self.stages[-1])

    def sinks_of(self, stage: Stage) -> tuple[Sink, ...]:
        """The sinks that get a stage's emissions."""
        return tuple(sink for sink in self.sinks if self.stage_of(sink) == stage)

    @property
    def published_stages(self) -> tuple[str, ...]:
        """The names of the stages whose emissions are written: those of sinks and of checks, and the last."""
        names = {self.stages[-1].name, *(self.stage_of(sink).name for sink in self.sinks)}
        names |= {self.checked_stage(check).name for check in self.checks if check.of != "state"}
        return tuple(stage.name for stage in self.stages if stage.name in names)

    def key_of(self, stage: Stage) -> tuple[str, ...]:
        """The columns that make up a stage's key: its own, or those of the stage before it."""
        keys = [each.key for each in self.stages[: self.stages.index(stage) + 1] if each.key is not None]
        return keys[-1] if keys else self.key_columns

    def takes_deletions(self, stage: Stage) -> bool:
        """Whether a deletion that the stage before emits deletes a key of this one.

        What is deleted there is a key, or one window of a key. A stage whose key is another, or without the
        window, holds groups of those, and a group may have other members: no deletion reaches it.
        """
        number = self.stages.index(stage)
        if number == 0:
            return True
        before = self.stages[number - 1]
        same_key = stage.key is None or set(stage.key) == set(self.key_of(before))
        return same_key and before.window is None
