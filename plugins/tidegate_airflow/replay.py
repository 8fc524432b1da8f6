"""The part of a trigger's form that requests a replay of quarantine, or chooses records of it for an action.

A replay is a batch of the pipeline's own DAG, like `drain`. It is planned once per run, also if tasks retry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from tidegate.formats.decoded import Reason

if TYPE_CHECKING:
    from pyarrow import Table

    from tidegate.app import App
    from tidegate.ledger import Stream
    from tidegate.quarantine import QuarantineFilter, ReplayedRecords

_SECTION = "Replay of quarantine"
REPLAY = "replay"
_RECORD = r"^[^/]+/[0-9]+/[0-9]+$"


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
        "replay_record": Param(
            None,
            type=["null", "string"],
            pattern=_RECORD,
            title="Record",
            description="Only this record, by its position: topic/partition/offset.",
            section=_SECTION,
        ),
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
    record: tuple[str, int, int] | None = None

    @property
    def where(self) -> QuarantineFilter:
        """The filter of the records. Raises SettingsInvalid for a reason that does not exist."""
        from tidegate.quarantine import QuarantineFilter

        since_ms, until_ms = (
            None if at is None else round(at.timestamp() * 1000) for at in (self.since, self.until)
        )
        topic, partition, offset = self.record or (None, None, None)
        return QuarantineFilter(
            self.reasons,
            topics=() if topic is None else (topic,),
            partitions=() if partition is None else (partition,),
            offset=offset,
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

        return ReplayedRecords(self.rows(app, stream), decided_by(run), self.because)

    def count_open(self, app: App, stream: Stream) -> int:
        """Return how many records it would replay now. Raises SettingsInvalid if an edit does not fit one of
        them.
        """
        return sum(rows.num_rows for rows in self.rows(app, stream)())

    def rows(self, app: App, stream: Stream) -> Callable[[], Iterator[Table]]:
        """Return what reads the open records that it chooses, edited."""
        from tidegate import quarantine

        edit = quarantine.RecordEdit(self.new_value, self.new_key)
        # A function, not rows: quarantine can exceed memory, and a retry with a plan never reads it.
        return lambda: map(edit.apply, quarantine.iter_open(app, stream, self.where))


def decided_by(run: Any) -> str:
    """Return the user who has triggered a run (Airflow's `DagRun`); the run itself if nobody has."""
    return getattr(run, "triggering_user_name", None) or f"Airflow's run {run.run_id}"


def read_replay(
    params: Mapping[str, Any], instants: Mapping[str, datetime | None], discards: bool = False
) -> Replay | None:
    """Return the replay that the parameters of a run request; None if they request none.

    `instants` has the parsed values of `replay_since` and `replay_until`. `discards`: the chosen records are
    discarded, and not replayed. Raises AirflowFailException if the parameters choose records, but do not turn
    on `replay`.
    """
    # A filter without `replay` would be ignored, and the run would read Kafka instead.
    given = [name for name in replay_params() if name != REPLAY and params.get(name)]
    if not params.get(REPLAY, False) and not discards:
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
        record=_position(params.get("replay_record") or None),
    )


def _position(written: str | None) -> tuple[str, int, int] | None:
    if written is None:
        return None
    match = re.match(_RECORD, written)
    if match is None:
        raise AirflowFailException(
            f"`replay_record` is {written!r}, which is no position. Write for example stock/0/1200. Nothing "
            "was planned."
        )
    topic, partition, offset = written.split("/")
    return topic, int(partition), int(offset)
