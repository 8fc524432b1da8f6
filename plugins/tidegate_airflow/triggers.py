"""Translate a run of a DAG into a trigger of the engine: its interval, or the parameters that a person gave.

A run that is triggered by hand reads everything up to now. Airflow gives such a run the last complete
interval of the schedule. The person has not requested it, so it is ignored; an interval that a person gave
counts.

A replay is a batch of the pipeline's own DAG, like `drain`. It is planned once per run, also if tasks retry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetOrTimeSchedule, CronDataIntervalTimetable, Param
from airflow.sdk.exceptions import AirflowFailException

from tidegate.formats.decoded import Reason
from tidegate_airflow.runs import is_backfill, ledger_run_id

if TYPE_CHECKING:
    from pyarrow import Table

    from tidegate.app import App
    from tidegate.batch import Trigger
    from tidegate.ledger import Stream
    from tidegate.quarantine import QuarantineFilter, ReplayedRecords

_SECTION = "Replay of quarantine"
REPLAY = "replay"
_PARTITION_OFFSETS = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "integer", "minimum": 0},
}
_LIMITS = ("until", "until_offsets", "max_records")
_BY_HAND = ("manual", "operator_triggered")


def replay_params() -> dict[str, Param]:
    """Return the part of a trigger's form that requests a replay.

    Example: `DAG(…, params=replay_params())`
    """
    return {
        REPLAY: Param(
            False,
            type="boolean",
            title="Replay",
            description="Read nothing from Kafka, and replay open records of quarantine in a batch of their "
            "own: all of them, or those that the fields below choose.",
            section=_SECTION,
        ),
        "replay_reasons": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            examples=[str(reason) for reason in Reason],
            title="Reasons",
            description="Only records that are in quarantine for these reasons. Empty: any.",
            section=_SECTION,
        ),
        "replay_first_batch": _batch("First batch", "Only records of this batch and later ones."),
        "replay_last_batch": _batch("Last batch", "Only records of this batch and earlier ones."),
        "replay_since": _instant_param("Since", "Only records from this instant on, by their timestamp."),
        "replay_until": _instant_param("Until", "Only records before this instant, by their timestamp."),
        "replay_set": _sql(
            "New value",
            "A SQL expression of DuckDB over each record's `value` (JSON), such as "
            "json_merge_patch(value, {'id': CAST(value->>'id' AS BIGINT)}). If it does not fit a record, the "
            "run fails, and nothing is replayed.",
        ),
        "replay_set_key": _sql(
            "New key",
            "A SQL expression over each record's `value` (JSON) and `key` (BLOB), such as value->>'id'.",
        ),
        "replay_because": Param(
            None,
            type=["null", "string"],
            title="Why",
            description="For the history of the records.",
            section=_SECTION,
        ),
    }


def _batch(title: str, description: str) -> Param:
    return Param(
        None, type=["null", "integer"], minimum=1, title=title, description=description, section=_SECTION
    )


def _sql(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], title=title, description=description, section=_SECTION)


def _instant_param(title: str, description: str) -> Param:
    return Param(
        None,
        type=["null", "string"],
        format="date-time",
        title=title,
        description=description,
        section=_SECTION,
    )


@dataclass(frozen=True)
class Replay:
    """The open records to replay (see `quarantine.QuarantineFilter`), their edits, and the reason."""

    reasons: tuple[str, ...] = ()
    first_batch: int | None = None
    last_batch: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    new_value: str | None = None
    new_key: str | None = None
    because: str = ""

    @property
    def where(self) -> QuarantineFilter:
        """The filter of the records. Raises SettingsInvalid for a reason that does not exist."""
        from tidegate.quarantine import QuarantineFilter

        since_ms, until_ms = (
            None if at is None else round(at.timestamp() * 1000) for at in (self.since, self.until)
        )
        return QuarantineFilter(
            self.reasons,
            first_batch=self.first_batch,
            last_batch=self.last_batch,
            since_ms=since_ms,
            until_ms=until_ms,
        )

    def request(self, app: App, stream: Stream, run: Any) -> ReplayedRecords:
        """Return the resolution that the plan of a run (Airflow's `DagRun`) stores, unless the run has a plan
        already.

        The decision is recorded for the person who triggered the run. Raises SettingsInvalid for an edit that
        cannot be read.

        Args:
            app: The app.
            stream: The stream whose quarantine is replayed.
            run: Airflow's `DagRun`.
        """
        from tidegate.quarantine import ReplayedRecords

        # A run that no person has triggered has no user.
        by = getattr(run, "triggering_user_name", None) or f"Airflow's run {run.run_id}"
        return ReplayedRecords(self._rows(app, stream), by, self.because)

    def count_open(self, app: App, stream: Stream) -> int:
        """Return how many records it would replay now. Raises SettingsInvalid if an edit does not fit one of
        them.
        """
        return sum(rows.num_rows for rows in self._rows(app, stream)())

    def _rows(self, app: App, stream: Stream) -> Callable[[], Iterator[Table]]:
        from tidegate import quarantine

        edit = quarantine.RecordEdit(self.new_value, self.new_key)
        # A function, not rows: quarantine can exceed memory, and a retry with a plan never reads it.
        return lambda: map(edit.apply, quarantine.iter_open(app, stream, self.where))


def read_replay(params: Mapping[str, Any], instants: Mapping[str, datetime | None]) -> Replay | None:
    """Return the replay that the parameters of a run request; None if they request none.

    `instants` has the parsed values of `replay_since` and `replay_until`. Raises AirflowFailException if the
    parameters choose records, but do not turn on `replay`.
    """
    # A filter without `replay` would be ignored, and the run would read Kafka instead.
    given = [name for name in replay_params() if name != REPLAY and params.get(name)]
    if not params.get(REPLAY, False):
        if given:
            raise AirflowFailException(
                f"The run was triggered with {', '.join(given)}, and without `replay`. "
                "Turn it on, or leave them out. Nothing was planned."
            )
        return None
    return Replay(
        # A cleared field of the form is an empty text or list, which means the same as null.
        reasons=tuple(params.get("replay_reasons") or ()),
        first_batch=params.get("replay_first_batch"),
        last_batch=params.get("replay_last_batch"),
        since=instants["replay_since"],
        until=instants["replay_until"],
        new_value=params.get("replay_set") or None,
        new_key=params.get("replay_set_key") or None,
        because=params.get("replay_because") or "",
    )


def run_params() -> dict[str, Param]:
    """Return the form of a trigger. With all defaults, the run reads everything up to now.

    Example: `DAG(…, params=run_params())`
    """
    return {
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Until",
            description="Read the records from before this instant, which is also the batch's clock. "
            "Empty: everything up to now.",
        ),
        "until_offsets": Param(
            None,
            type=["null", "object"],
            additionalProperties=_PARTITION_OFFSETS,
            title="Until offsets",
            description="Read up to these offsets (exclusive), by topic and partition: "
            '{"stock": {"0": 1200}}. Partitions that are not named are not read.',
        ),
        "max_records": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Maximum records",
            description="Read at most so many records in this run. Later runs read the rest.",
        ),
        "drain": Param(
            False,
            type="boolean",
            title="Drain",
            description="Read nothing, and emit what the stages have buffered.",
        ),
        "from_start": Param(
            False,
            type="boolean",
            title="From start",
            description="Send again what another generation or pipeline has sent to the same sink.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only show the plan, in the log of the first task. Nothing is written.",
        ),
        **replay_params(),
    }


@dataclass(frozen=True)
class Request:
    """The parameters of a run; see `run_params`."""

    until: datetime | None = None
    until_offsets: Mapping[tuple[str, int], int] | None = None
    max_records: int | None = None
    drain: bool = False
    from_start: bool = False
    dry_run: bool = False
    replay: Replay | None = None


def read_request(params: Mapping[str, Any]) -> Request:
    """Return the request of a run's parameters.

    Raises AirflowFailException if a parameter is unknown, or if parameters contradict each other: a mistyped
    `dry_run` must not read anything.
    """
    # Airflow accepts any `conf` of a run, so it does not refuse unknown names itself.
    unknown = sorted(params.keys() - run_params().keys())
    if unknown:
        raise AirflowFailException(
            f"The run was triggered with {', '.join(unknown)}, which tidegate does not know. "
            f"Known are {', '.join(run_params())}. Nothing was planned."
        )
    offsets = params.get("until_offsets")
    request = Request(
        until=_instant(params, "until"),
        until_offsets=None if offsets is None else _by_partition(offsets),
        max_records=params.get("max_records"),
        drain=params.get("drain", False),
        from_start=params.get("from_start", False),
        dry_run=params.get("dry_run", False),
        replay=read_replay(
            params, {name: _instant(params, name) for name in ("replay_since", "replay_until")}
        ),
    )
    limits = [
        name for name in ("until", "until_offsets", "max_records") if getattr(request, name) is not None
    ]
    limits += ["drain"] if request.drain and request.replay else []
    # A limit would suggest that records are read; the run refuses instead of ignoring it.
    reads_nothing = "replay" if request.replay else "drain" if request.drain else None
    if reads_nothing and limits:
        raise AirflowFailException(
            f"The run was triggered with `{reads_nothing}`, which reads nothing, and with "
            f"{', '.join(limits)}. Leave out either. Nothing was planned."
        )
    return request


def trigger_of(context: Mapping[str, Any]) -> Trigger:
    """Return the trigger of a task's run. Raises AirflowFailException as `read_request`."""
    from tidegate.batch import Trigger

    run, request = context["dag_run"], read_request(context["params"])
    if request.replay is not None and is_backfill(run):
        raise AirflowFailException(
            "A backfill reads intervals, and `replay` reads nothing. Trigger a run by itself. Nothing was "
            "planned."
        )
    start, end = interval(run, context["dag"].timetable)
    # Never the machine's time: a retry must use the same clock.
    clock = end or run.run_after
    if request.until is not None:
        # A clock in the future would close windows that still get records.
        start, end, clock = None, request.until, min(request.until, run.run_after)
    return Trigger(
        ledger_run_id(run.run_id, run.run_after),
        clock_ms=_epoch_ms(clock),
        interval_end_ms=None if end is None else _epoch_ms(end),
        now_ms=_epoch_ms(datetime.now(timezone.utc)),
        drain=request.drain,
        backfill=is_backfill(run),
        until_offsets=request.until_offsets,
        max_records=request.max_records,
        interval_start_ms=None if start is None else _epoch_ms(start),
        from_start=request.from_start,
    )


def interval(run: Any, timetable: Any) -> tuple[datetime | None, datetime | None]:
    """Return the interval of a run (Airflow's `DagRun`); (None, None) if it reads everything up to now.

    Args:
        run: Airflow's `DagRun`.
        timetable: The timetable of its DAG.
    """
    if run.run_type in _BY_HAND and run.data_interval_end is not None and _is_inferred(run, timetable):
        return None, None
    return run.data_interval_start, run.data_interval_end


def is_triggered_again(run: Any) -> bool:
    """Return whether TriggerDagRunOperator may have cleared a run instead of creating a new one."""
    return bool(run.run_type == "operator_triggered" and run.clear_number)


def _is_inferred(run: Any, timetable: Any) -> bool:
    """Return whether Airflow has inferred the interval of a manual run from its logical date."""
    if run.data_interval_start == run.data_interval_end:
        return True  # a DAG without a schedule
    if isinstance(timetable, AssetOrTimeSchedule):
        timetable = timetable.timetable
    # An interval that ends after the logical date was given by a person: Airflow infers only past ones.
    if not isinstance(timetable, CronDataIntervalTimetable) or run.logical_date < run.data_interval_end:
        return False
    # Only the scheduler's class infers intervals; the task SDK's class of the same name has no such method.
    from airflow.timetables.interval import CronDataIntervalTimetable as SchedulersTimetable
    from pendulum import instance

    # Airflow does not store whether an interval was inferred, so the inference is repeated.
    schedule = SchedulersTimetable(timetable.expression, timezone=timetable.timezone)
    inferred = schedule.infer_manual_data_interval(run_after=instance(run.logical_date))
    return bool(inferred.end == run.data_interval_end)


def _instant(params: Mapping[str, Any], name: str) -> datetime | None:
    written = params.get(name)
    if written is None:
        return None
    try:
        instant = datetime.fromisoformat(written.replace("Z", "+00:00"))
    except ValueError:
        instant = datetime.min
    # A time without a zone would mean another instant on each machine.
    if instant.tzinfo is None:
        raise AirflowFailException(
            f"`{name}` is {written!r}, which is no instant with a time zone. "
            "Write for example 2026-01-31T00:00:00Z. Nothing was planned."
        )
    return instant


def _by_partition(offsets: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    return {(topic, int(at)): offset for topic, parts in offsets.items() for at, offset in parts.items()}


def _epoch_ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)
