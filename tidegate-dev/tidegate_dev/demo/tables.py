"""Read the demo's output back from the SQL database, and the visits that wait from the lake."""

from __future__ import annotations

import json

from sqlalchemy import create_engine, text

from tidegate.app import App
from tidegate.inspect import read_state
from tidegate.ledger import Stream
from tidegate_dev.demo.expected import History
from tidegate_dev.demo.expected_batches import listed

_ROWS = 'SELECT "customerId", batch, cast(events AS text) FROM visitor_batches ORDER BY batch, ordinal'


def read_batches(app: App, stream: Stream) -> History:
    """Return, per customer, the batches in the SQL table, then the visits that wait in the state as batch
    None.

    It has the shape of `expected_batches`, so that both can be compared.
    Raises TidegateError if the state cannot be read.
    """
    engine = create_engine(app.settings.sql_url())
    batches: History = {}
    with engine.connect() as connection:
        for customer, batch, events in connection.execute(text(_ROWS)):
            batches.setdefault(str(customer), []).append({"batch": batch, "events": json.loads(events)})
    engine.dispose()
    state = read_state(app, stream).to_pylist()
    waiting = {row["key"]: row["value"]["events"] for row in state if row["value"]}
    names = sorted(batches.keys() | waiting.keys())
    return {name: listed(batches.get(name, []), waiting.get(name, [])) for name in names}
