"""The records of a key in one batch, from Kafka, with what became of them: for a page."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

from tidegate.app.root import App, OpenSession
from tidegate.errors import SettingsInvalid
from tidegate.inspect.explain import explain
from tidegate.inspect.overview import overviews
from tidegate.ledger import Stream

if TYPE_CHECKING:
    from tidegate.spark.explain import TraceEvent

MOST_RECORDS = 200_000
"""The most records of a batch that is decided again for a page."""
_SPARK = Lock()
"""Pages share one session, which decides one batch at a time."""


def key_records(
    app: App, stream: Stream, key: str, seq: int, open_session: OpenSession
) -> Sequence[TraceEvent]:
    """Return the events of a key in a committed batch, which is decided again from Kafka's records.

    Raises SettingsInvalid if the batch is too large, or has nothing of the key; BrokerUnavailable if Kafka
    does not answer within two seconds; and the errors of `explain`.
    """
    plan = app.ledger.plan(stream, seq)
    if plan is not None and plan.most_records > MOST_RECORDS:
        raise SettingsInvalid(
            f"Batch {seq} has read {plan.most_records:,} offsets, and a page reads at most {MOST_RECORDS:,}",
            f"Run tidegate explain {stream.pipeline} '{key}' --batch {seq}.",
        )
    # A client would wait a minute for a broker that does not answer.
    _, lags = overviews(app, [stream])
    if lags.error is not None:
        raise lags.error
    with _SPARK:
        (explanation,) = explain(app, stream, key, open_session, seq)
    return explanation.events
