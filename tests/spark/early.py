"""A JVM opens its context by itself, then PySpark uses that. Prints what was seen as JSON."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tidegate.spark.driver import DriverJvm, driver_settings
from tidegate.spark.session import open_session


def _daemons(jvm: int) -> int:
    """Return the number of daemons of Python workers that a JVM has, as soon as none is being started."""
    for thread in threading.enumerate():
        if thread.name == "start Python workers":
            thread.join()
    parents = (path.read_text().rsplit(")", 1)[1].split()[1] for path in Path("/proc").glob("[0-9]*/stat"))
    return [int(parent) for parent in parents].count(jvm)


def main() -> None:
    with DriverJvm() as jvm:
        jvm.start(driver_settings("local[1]", None, records=0))
        assert jvm._opening is not None
        assert jvm._process is not None
        pid = jvm._process.pid
        jvm._opening.join()
        opened_ms = time.time() * 1000
        session = open_session("local[1]", records=0, jvm=jvm)
        seen = {
            "opened before": session.sparkContext.startTime <= opened_ms,
            "started by PySpark": session.sparkContext._gateway.proc is not None,
            "accumulator": session.sparkContext._javaAccumulator,
            "setting": session.conf.get("spark.sql.codegen.factoryMode"),
            "rows": session.range(3).mapInArrow(lambda rows: rows, "id long").count(),
            "daemons": _daemons(pid),
        }
        session.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
