"""A pipeline file as a whole.

`yaml.grammar` turns its mistakes into problems, and has an example of each field.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timezone, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticKnownError

from tidegate.kernel.rows import RECORDED
from tidegate.model import names, null_keys
from tidegate.model.airflow import AirflowSettings
from tidegate.model.connection import Connection
from tidegate.model.lookup import Lookup, check_readers
from tidegate.model.mistakes import mistake, shown
from tidegate.model.names import Duration
from tidegate.model.quality import AnyCheck, Quality, QualityCheck
from tidegate.model.quarantine_rules import DeadLetterTopic, LateRule, OutboxRule, QuarantineRule
from tidegate.model.schedule import FreshnessRule, Schedule
from tidegate.model.scope import Model, require_filled, scope_of
from tidegate.model.source import Source
from tidegate.model.sources import Sources, check_name, note_names
from tidegate.model.stage import Stage
from tidegate.model.tables import Expected
from tidegate.model.zones import suggested_zone
from tidegate.sinks.model import SinkModel
from tidegate.sinks.registry import Sink
from tidegate.stage_names import late_name

UTC = "UTC"
_DAY_OR_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?")


def check_timezone(name: str) -> str:
    """Return `name` if it is a name of the IANA time zone database. Raises a mistake otherwise.

    Example: `check_timezone("Europe/Berlin")`
    """
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):  # zoneinfo: unknown, not a valid name, or a folder of zones
        raise mistake(f"{name!r} is not a time zone", suggested_zone(name)) from None
    return name


def read_start_date(written: Any, zone: str) -> datetime | None:
    """Return the start in UTC of a day in the time zone `zone`, or an instant that has a zone itself.

    Args:
        written: A day such as `2026-01-31`, an ISO 8601 instant, or None.
        zone: The schedule's time zone, in which a day begins at midnight.

    Raises a mistake if it is neither.
    """
    if written is None:
        return None
    # `fromisoformat` reads more forms in newer Pythons; a file must mean the same in all of them.
    is_legible = isinstance(written, str) and _DAY_OR_INSTANT.fullmatch(written)
    try:
        start = datetime.fromisoformat(written.replace("Z", "+00:00") if is_legible else "")
    except ValueError:
        fix = "Write a day such as `2026-01-31`, or an instant with its zone: `2026-01-31T08:00:00Z`."
        raise mistake(f"{shown(written)} is not a day to start on", fix) from None
    if start.tzinfo is None:
        start = start.replace(tzinfo=_zone(zone))
    try:
        return start.astimezone(timezone.utc)
    except OverflowError:  # Python's years are 1 to 9999, in UTC too
        fix = "Write a day after 0001-01-01, such as `2026-01-31`."
        raise mistake(f"{shown(written)} is outside of the years 1 to 9999 in UTC", fix) from None


def _zone(name: str) -> tzinfo:
    """Return a time zone. UTC needs no time zone database, which small container images may lack."""
    return timezone.utc if name == UTC else ZoneInfo(name)


def _read_start_date(written: Any, info: Info) -> Any:
    return read_start_date(written, info.data.get("timezone", UTC))


def _check_catchup(catchup: bool, info: Info) -> bool:
    schedule = info.data.get("schedule")
    if catchup and not isinstance(schedule, str | None) and schedule.cron is None:
        fix = "Leave it out: a run reads all records up to now. Or write `cron:` in `schedule`."
        raise mistake("`catchup: true` needs intervals, which only `cron` has", fix)
    if catchup and "start_date" in info.data and info.data["start_date"] is None:
        fix = "Write `start_date: 2026-01-31` beside it: the first interval begins there."
        raise mistake("`catchup: true` needs a start date", fix)
    return catchup


def _note_name(name: str, info: Info) -> str:
    scope_of(info).pipeline = name
    return name


class Scheduling(Model):
    """The fields that a scheduler needs: the stream of a file, and when its runs start.

    `schedule` is cron in `timezone`; or new records, or assets whose updates, start a run, which reads all
    records up to now.
    With `catchup`, intervals since `start_date` without a run get one, in order. Without it, only the newest
    interval gets one, because a run reads all records that are left.
    If a run has not ended so long (`deadline`) after it was queued, tidegate alerts.

    Fields with `exclude=True` are settings of the DAG and not of a batch: plans do not store them.
    """

    pipeline: Annotated[str, AfterValidator(names.check_name), AfterValidator(_note_name)] = Field(
        description="The pipeline's name: its state, output and progress are stored under it."
    )
    generation: Annotated[StrictInt, Field(ge=1, lt=2**31)] = Field(
        default=1, description="Another number has its own state, output and progress."
    )
    start_over: StrictBool = Field(
        default=False,
        exclude=True,
        description="Whether it may send again what another generation or pipeline has sent to its sink.",
    )
    schedule: Schedule | None = Field(
        default=None,
        description="When runs start: cron in `timezone`, a preset, new records, or assets. Null: only when "
        "triggered.",
    )
    timezone: Annotated[str, AfterValidator(check_timezone)] = Field(
        default=UTC, exclude=True, description="The IANA time zone that `schedule` is in."
    )
    start_date: Annotated[datetime | None, BeforeValidator(_read_start_date)] = Field(
        default=None,
        exclude=True,
        description="When the first interval begins: a day, or a time with a zone. Null: long ago.",
    )
    catchup: Annotated[StrictBool, AfterValidator(_check_catchup)] = Field(
        default=False,
        exclude=True,
        description="Whether intervals since `start_date` that had no run get one, in order.",
    )
    deadline_ms: Duration | None = Field(
        alias="deadline",
        default=None,
        exclude=True,
        description="If a run has not ended so long after it was queued, tidegate alerts.",
    )
    tasks: Literal["five", "one"] = Field(
        default="five",
        description="Airflow's tasks of a batch: one for each step, or a single one for all of them.",
    )
    airflow: AirflowSettings = Field(
        default=AirflowSettings(), exclude=True, description="Settings of its DAG in Airflow."
    )


class Written(Scheduling):
    """The fields of a pipeline file."""

    named_sources: Annotated[
        dict[Annotated[str, AfterValidator(check_name)], Source], BeforeValidator(note_names)
    ] = Field(
        alias="sources",
        default={},
        description="In place of `source`, several sources side by side: name: source.",
    )
    single_source: Source | None = Field(
        alias="source", default=None, description="Which records are read, and how they are decoded."
    )
    lookup: tuple[Lookup, ...] = Field(
        default=(), description="Columns that are added to each record from other tables."
    )
    stages: Annotated[tuple[Stage, ...], BeforeValidator(require_filled)] = Field(
        description="One or more; each stage reads the emissions of the one before, or of that in `from`."
    )
    sinks: tuple[Sink, ...] = Field(default=(), description="Where emissions go; at least one.")
    quality: Quality = Field(
        default=(),
        description="The checks that a batch must pass before it is committed: a suite, a checkpoint, or a "
        "list.",
    )
    outboxes: OutboxRule | None = Field(
        default=None, description="How long the emissions of a batch are kept. Null: forever."
    )
    quarantine: QuarantineRule | None = Field(
        default=None,
        description="How much of a batch may be unusable before tidegate alerts, or stops; and a topic for "
        "it.",
    )
    late: LateRule | None = Field(
        default=None,
        description="How many records of a batch may be late, and dropped, before tidegate alerts, or stops.",
    )
    freshness: FreshnessRule | None = Field(
        default=None, description="How soon after its event an emission must be out before tidegate alerts."
    )

    @model_validator(mode="before")
    @classmethod
    def _begin(cls, written: Any) -> Any:
        # pydantic would name a default's mistake after the attribute, and not after the field of the file
        return {"source": None, **written} if isinstance(written, dict) else written

    @field_validator("single_source")
    @classmethod
    def _check_sources(cls, source: Source | None, info: Info) -> Source | None:
        if "named_sources" not in info.data:
            return source  # they have mistakes, which are reported already
        sources = info.data["named_sources"]
        if sources and source is not None:
            raise mistake("there is `source` beside `sources`", "Move it into `sources`, under a name.")
        if not sources and source is None:
            raise PydanticKnownError("missing")
        return source

    @field_validator("stages")
    @classmethod
    def _check_readers(cls, stages: tuple[Stage, ...], info: Info) -> tuple[Stage, ...]:
        read = {name for stage in stages for name in stage.sources}
        unread = [name for name in info.data.get("named_sources") or () if name not in read]
        if unread:
            fix = "Name it in a stage's `from`, or leave it out."
            raise mistake(f"no stage reads the source `{unread[0]}`", fix)
        return stages

    @field_validator("stages")
    @classmethod
    def _check_reacting(cls, stages: tuple[Stage, ...], info: Info) -> tuple[Stage, ...]:
        check_readers(info.data.get("lookup") or (), stages)
        return stages

    @field_validator("stages")
    @classmethod
    def _check_unchanged(cls, stages: tuple[Stage, ...], info: Info) -> tuple[Stage, ...]:
        sources = [info.data.get("single_source"), *(info.data.get("named_sources") or {}).values()]
        repeats = any(source is not None and source.deduplicate == "root" for source in sources)
        if repeats and any(stage.unchanged is not None for stage in stages):
            fix = "Leave `unchanged` out, or use another `deduplicate`."
            raise mistake(
                "`unchanged` does not go with `deduplicate: root`: a repetition could be filled in", fix
            )
        return stages

    @field_validator("stages")
    @classmethod
    def _check_null_keys(cls, stages: tuple[Stage, ...], info: Info) -> tuple[Stage, ...]:
        null_keys.check_stages(stages, _keyless(stages, info))
        return stages

    @field_validator("quality")
    @classmethod
    def _check_quarantined_rows(cls, written: tuple[AnyCheck, ...], info: Info) -> tuple[AnyCheck, ...]:
        checks = [check for entry in written for check in entry.checks]
        # Pydantic leaves out fields with mistakes; those are reported already.
        stages = info.data.get("stages") or ()
        partial = [stage.name for stage in stages if stage.unchanged is not None]
        null_keys.check_quality(checks, stages, _keyless(stages, info))
        refusing = [check for check in checks if check.on_failure == "quarantine"]
        if any((check.stage or stages[-1].name) in partial for check in refusing if stages):
            fix = "Use `on_failure: stop`, or compute what is checked in a stage after it."
            raise mistake(
                "the next record could not refer to a value that is in quarantine (`unchanged`)", fix
            )
        return written

    @field_validator("sinks")
    @classmethod
    def _check_sinks(cls, sinks: tuple[Any, ...], info: Info) -> tuple[Any, ...]:
        # A case compares emissions itself, and sends nothing.
        if not sinks and not scope_of(info).in_case:
            fix = "Write for example `sinks: [{kind: kafka, topic: availability}]`."
            raise mistake("a pipeline needs at least one sink", fix)
        stages = info.data.get("stages") or ()
        null_keys.check_sinks(sinks, stages, _keyless(stages, info))
        late = [late_name(stage.name) for stage in stages if stage.late is not None]
        unread = [name for name in late if all(sink.stage != name for sink in sinks)]
        if sinks and unread:
            fix = f"Write `{{kind: table, stage: {unread[0]}}}`, or `on_late: drop` at the stage."
            raise mistake(f"no sink reads `{unread[0]}`", fix)
        return sinks


def _keyless(stages: tuple[Stage, ...], info: Info) -> list[Stage]:
    """Return the stages that records without a key reach."""
    named, single = info.data.get("named_sources") or {}, info.data.get("single_source")
    sources = named if single is None else {names.SOURCE: single}
    return [
        stage
        for stage in stages
        if null_keys.keeps_null_keys(stage, [sources[name] for name in stage.sources if name in sources])
    ]


class Pipeline(Written):
    """A pipeline without mistakes. `text` is the whole text of its file."""

    text: str

    @property
    def hash(self) -> str:
        """The SHA-256 of the text, in hex: any edit changes it."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    @property
    def sources(self) -> Sources:
        """The sources by name: those of `sources`, or `source` alone."""
        single = self.single_source
        return Sources(self.named_sources if single is None else {names.SOURCE: single})

    def with_sources(self, sources: Sources) -> Pipeline:
        """Return the pipeline with what a plan fixes about its sources beside the file."""
        if self.single_source is None:
            return self.model_copy(update={"named_sources": dict(sources)})
        return self.model_copy(update={"single_source": sources[names.SOURCE]})

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that must be set to run the pipeline, each once; that of the sources is first."""
        of_sinks = [connection for sink in self.outputs for connection in sink.connections]
        registries = [registry.cluster for registry in self.sources.registries]
        # `dict.fromkeys` removes repetitions and keeps the order.
        return tuple(dict.fromkeys([self.sources.cluster, *registries, *of_sinks]))

    @property
    def checks(self) -> tuple[QualityCheck, ...]:
        """The pipeline's checks.

        Checks of a checkpoint are included after its files were read, as in a plan.
        """
        return tuple(check for entry in self.quality for check in entry.checks)

    @property
    def dead_letters(self) -> DeadLetterTopic | None:
        """The topic that also gets all records in quarantine; None if there is none."""
        return self.quarantine.dead_letters if self.quarantine is not None else None

    @property
    def outputs(self) -> tuple[SinkModel, ...]:
        """The outputs of the pipeline: the sinks in the file's order, then the topic of dead letters."""
        dead_letters = self.dead_letters
        return (*self.sinks, *([dead_letters] if dead_letters is not None else ()))

    def stage_of(self, sink: SinkModel) -> Stage:
        """Return the stage whose emissions a sink gets.

        Args:
            sink: A sink of this pipeline, or its topic of dead letters.
        """
        return next((stage for stage in self.outlets if stage.name == sink.stage), self.stages[-1])

    def checked_sink(self, check: QualityCheck) -> Sink | None:
        """Return the sink whose columns a check sees; None if the check is of a stage."""
        return next((sink for sink in self.sinks if sink.name == check.sink), None)

    def checked_stage(self, check: QualityCheck) -> Stage:
        """Return the stage whose emissions or state a check evaluates."""
        sink = self.checked_sink(check)
        if sink is not None:
            return self.stage_of(sink)
        return next((stage for stage in self.stages if stage.name == check.stage), self.stages[-1])

    def sinks_of(self, stage: Stage) -> tuple[Sink, ...]:
        """Return the sinks that get a stage's emissions."""
        return tuple(sink for sink in self.sinks if self.stage_of(sink) == stage)

    @property
    def published_stages(self) -> tuple[str, ...]:
        """The stages whose emissions are stored: those of sinks and checks, and the last one."""
        names = {self.stages[-1].name, *(self.stage_of(sink).name for sink in self.sinks)}
        # A check of state reads the state's files, which exist for each stage.
        names |= {self.checked_stage(check).name for check in self.checks if check.rows != "state"}
        return tuple(stage.name for stage in self.outlets if stage.name in names)

    @property
    def outlets(self) -> tuple[Stage, ...]:
        """The stages, and the late records of those that emit them: sinks can get each of these."""
        late = (stage.late for stage in self.stages)
        return (*self.stages, *(stage for stage in late if stage is not None))

    @property
    def sends_recorded(self) -> bool:
        """Whether a sink sends the timestamps that Kafka has of the records that trigger emissions."""
        rules = filter(None, (sink.messages for sink in self.sinks))
        return any(rule.timestamp == RECORDED for rule in rules)

    @property
    def tables(self) -> tuple[Lookup | Expected, ...]:
        """The lookups, and what stages expect: each reads a table, which a plan pins."""
        return (*self.lookup, *(stage.expected for stage in self.stages if stage.expected is not None))

    @property
    def reacting_lookups(self) -> tuple[Lookup, ...]:
        """The lookups whose changed rows make emissions."""
        return tuple(lookup for lookup in self.lookup if lookup.reacts)

    def input_of(self, stage: Stage) -> Stage | None:
        """Return the stage that a stage reads, of a join the left one; None for sources."""
        return next(iter(self.inputs_of(stage)), None)

    def inputs_of(self, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages whose emissions a stage reads; none if it reads records of sources."""
        return tuple(before for name in stage.inputs for before in self.stages if before.name == name)

    def path_to(self, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages on the way from the sources to a stage, and the stage itself."""
        names = {before.name for input_ in self.inputs_of(stage) for before in self.path_to(input_)}
        return (*(before for before in self.stages if before.name in names), stage)

    @property
    def source_stages(self) -> tuple[Stage, ...]:
        """The stages that read records of sources."""
        return tuple(stage for stage in self.stages if stage.reads_source)

    def sources_of(self, stage: Stage) -> tuple[Source, ...]:
        """Return the sources whose records reach a stage, maybe through other stages."""
        named = dict.fromkeys(name for before in self.path_to(stage) for name in before.sources)
        return tuple(self.sources[name] for name in named)

    def key_of(self, stage: Stage) -> tuple[str, ...]:
        """Return the columns of a stage's key: its own ones, or those of the nearest stage on the way from
        the source to it that has some.

        Example: `("storeId",)` for a stage with `key: [storeId]`, and for those after it without a key.
        """
        keys = [before.key for before in self.path_to(stage) if before.key is not None]
        # the union of sources has one key, which the grammar has checked
        return keys[-1] if keys else self.sources_of(stage)[0].key or ()

    def may_lack_keys(self, stage: Stage) -> bool:
        """Return whether emissions of a stage may be without a key."""
        return null_keys.keeps_null_keys(stage, self.sources_of(stage))

    def is_retracted(self, stage: Stage) -> bool:
        """Return whether a stage that reads this one takes back what its emissions replace."""
        return any(reader.retract for reader in self.stages if stage.name in reader.inputs)

    def takes_deletions(self, stage: Stage) -> bool:
        """Return whether a deletion that the earlier stage emits deletes a key of this stage.

        The earlier stage deletes a key, or one window of a key. A stage with another key, or without the
        window, has a group of such entries under each key, and the group may have other members, so it
        ignores deletions. The source deletes a key.
        """
        before = self.input_of(stage)
        if before is None:
            return stage.key is None
        if stage.join is not None:
            return True  # which ignores and counts them
        if stage.retract:
            return True
        # The order of the columns does not matter here: the same columns are the same groups.
        same_key = stage.key is None or set(stage.key) == set(self.key_of(before))
        return same_key and before.window is None
