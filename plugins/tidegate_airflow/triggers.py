"""Translate a run of a DAG into a trigger of the engine: its interval, or the parameters that a person gave.

A run that is triggered by hand reads everything up to now. Airflow gives such a run the last complete
interval of the schedule. The person has not requested it, so it is ignored; an interval that a person gave
counts.

A run can also request an action in place of a batch, such as a promotion. It is a run of the pipeline's own
DAG: the rights on that DAG cover it, the audit log names who has triggered it with which parameters, and it
waits until no batch is at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetOrTimeSchedule, CronDataIntervalTimetable, Param
from airflow.sdk.exceptions import AirflowFailException

from tidegate_airflow.replay import REPLAY, Replay, read_replay, replay_params
from tidegate_airflow.runs import is_backfill, ledger_run_id

if TYPE_CHECKING:
    from tidegate.batch import Trigger

ACTION = "action"
ACTIONS = {
    "check": "check: what would stop the next run",
    "compact": "compact: fold the state's files",
    "discard": "discard: nobody will use the chosen records of quarantine",
    "diff": "diff: what another generation would change",
    "promote": "promote: let a generation take charge",
    "rollback": "rollback: put the generation before in charge again",
    "recover": "recover: repair a stream that cannot continue",
}
"""Action -> what it does, as the form shows it."""
REMEDIES = (
    *("accept-gap", "drop-plan", "lower-clock", "restore-progress"),
    *("send-again", "give-up", "promote", "forget", "adopt-ledger"),
)
"""The remedies of `recover` that need no file of the machine that it runs on."""
_OPTIONS = {
    "diff": ("action_generation",),
    "promote": ("action_generation", "action_net"),
    "rollback": ("action_net",),
    "recover": ("action_remedy", "action_confirm"),
}
"""Action -> the parameters that it takes."""
_NEEDS = {"diff": "action_generation", "promote": "action_generation"}
_SECTION = "Action in place of a batch"


def action_params() -> dict[str, Param]:
    """Return the part of a trigger's form that requests an action.

    Example: `DAG(…, params=action_params())`
    """
    return {
        ACTION: Param(
            None,
            type=["null", "string"],
            enum=[None, *ACTIONS],
            values_display=dict(ACTIONS),
            title="Action",
            description="Plan no batch, and do this instead; the log of the first task has the result. "
            "`discard` takes the fields of the replay that choose records.",
            section=_SECTION,
        ),
        "action_generation": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Generation",
            description="For diff and promote: the generation that would take, or takes, charge.",
            section=_SECTION,
        ),
        "action_net": Param(
            False,
            type="boolean",
            title="Net",
            description="For promote and rollback: send only the differences from what consumers have.",
            section=_SECTION,
        ),
        "action_remedy": Param(
            None,
            type=["null", "string"],
            enum=[None, *REMEDIES],
            title="Remedy",
            description="For recover: only this remedy. Empty: show all that can help.",
            section=_SECTION,
        ),
        "action_confirm": Param(
            False,
            type="boolean",
            title="Do it",
            description="For recover: do what the remedy shows. Off: only show it.",
            section=_SECTION,
        ),
    }


@dataclass(frozen=True)
class ActionRequest:
    """An action with its parameters; see `action_params`."""

    name: str
    generation: int | None = None
    is_net: bool = False
    remedy: str | None = None
    is_confirmed: bool = False

    @property
    def takes_records(self) -> bool:
        """Whether the fields of the replay choose records for it."""
        return self.name == "discard"

    @property
    def is_decision(self) -> bool:
        """Whether a person decides by it about what there is: done again, it would decide about something
        else.
        """
        return self.takes_records or (self.name == "recover" and self.is_confirmed)


def read_action(params: Mapping[str, Any]) -> ActionRequest | None:
    """Return the action that the parameters of a run request; None if they request none.

    Raises AirflowFailException for an unknown action, and for parameters that the action does not take, or
    lacks: nothing that a person has written is ignored.
    """
    name = params.get(ACTION) or None
    given = [option for option in action_params() if option != ACTION and params.get(option)]
    if name is not None and name not in ACTIONS:
        raise AirflowFailException(f"There is no action {name!r}. There are: {', '.join(ACTIONS)}.")
    surplus = [option for option in given if option not in _OPTIONS.get(name or "", ())]
    if surplus:
        what = f"the action `{name}`, which does not take that" if name else "no `action`"
        raise AirflowFailException(
            f"The run was triggered with {', '.join(surplus)}, and with {what}. Nothing was done."
        )
    if name in _NEEDS and not params.get(_NEEDS[name]):
        raise AirflowFailException(f"The action `{name}` needs `{_NEEDS[name]}`. Nothing was done.")
    if params.get("action_confirm") and not params.get("action_remedy"):
        raise AirflowFailException("`action_confirm` goes with `action_remedy`. Nothing was done.")
    if name is None:
        return None
    return ActionRequest(
        name,
        params.get("action_generation"),
        bool(params.get("action_net", False)),
        params.get("action_remedy") or None,
        bool(params.get("action_confirm", False)),
    )


_PARTITION_OFFSETS = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "integer", "minimum": 0},
}
_BY_HAND = ("manual", "operator_triggered")


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
        **action_params(),
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
    action: ActionRequest | None = None


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
    offsets, action = params.get("until_offsets"), read_action(params)
    discards = action is not None and action.takes_records
    request = Request(
        action=action,
        until=_instant(params, "until"),
        until_offsets=None if offsets is None else _by_partition(offsets),
        max_records=params.get("max_records"),
        drain=params.get("drain", False),
        from_start=params.get("from_start", False),
        dry_run=params.get("dry_run", False),
        replay=read_replay(
            params,
            {name: _instant(params, name) for name in ("replay_since", "replay_until")},
            discards,
        ),
    )
    limits = [
        name for name in ("until", "until_offsets", "max_records") if getattr(request, name) is not None
    ]
    limits += ["drain"] if request.drain and request.replay else []
    if action is not None:
        limits += [name for name in ("drain", "from_start", "dry_run", REPLAY) if params.get(name)]
    # A limit would suggest that records are read; the run refuses instead of ignoring it.
    replaced = "replay" if request.replay else "drain" if request.drain else None
    reads_nothing = ACTION if action is not None else replaced
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
    if request.replay is not None:
        refuse_backfill(run, REPLAY)
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


def refuse_backfill(run: Any, chosen: str) -> None:
    """Raise AirflowFailException if a run (Airflow's `DagRun`) is one of a backfill, which reads intervals.

    Args:
        chosen: the parameter or action that reads nothing.
    """
    if is_backfill(run):
        raise AirflowFailException(
            f"A backfill reads intervals, and `{chosen}` reads nothing. Trigger a run by itself. Nothing was "
            "planned."
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
    # An operator gives no interval. Airflow infers it from `run_after`, whatever the logical date is.
    if run.run_type == "operator_triggered":
        return True
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
