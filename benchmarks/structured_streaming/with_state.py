"""`transformWithState`: the last availability of each product is state of the query, in RocksDB."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.structured_streaming.application import (
    OUTPUT,
    Arguments,
    open_session,
    read_events,
    run,
    send_once,
)

_STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class OnChange(StatefulProcessor):  # type: ignore[misc]
    """Emits a product's availability when it is another than the last one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "isAvailable boolean")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """A micro-batch's records of one product, in any order."""
        state = self._last.get()
        last = before = state[0] if state else None
        for row in sorted(rows, key=lambda row: row.offset):
            if row.isAvailable != last:
                last = row.isAvailable
                yield Row(key=row.key, value=_value(row), timestamp=row.timestamp)
        if last != before:
            self._last.update((last,))

    def close(self) -> None:
        """Nothing is open."""


def _value(row: Row) -> str:
    available = "true" if row.isAvailable else "false"
    return f'{{"storeId":"{row.storeId}","id":{row.id},"isAvailable":{available}}}'


def main() -> None:
    arguments = Arguments(*sys.argv[1:])
    spark = open_session(arguments, _STATE_STORE)
    events = read_events(spark, arguments)
    changes = events.groupBy("key").transformWithState(OnChange(), OUTPUT, "Update", "None")

    def publish(batch: DataFrame, batch_id: int) -> None:
        # a product's changes come out of one task, in order
        send_once(arguments, batch_id, batch.toArrow())

    print(run(changes, arguments, publish))


if __name__ == "__main__":
    main()
