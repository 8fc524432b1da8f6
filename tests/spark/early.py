"""A JVM opens its context by itself, then PySpark uses that. Prints what was seen as JSON."""

from __future__ import annotations

import json
import time

from tidegate.spark.driver import DriverJvm, driver_settings
from tidegate.spark.session import open_session


def main() -> None:
    with DriverJvm() as jvm:
        jvm.start(driver_settings("local[1]", None, records=0))
        assert jvm._opening is not None
        jvm._opening.join()
        opened_ms = time.time() * 1000
        session = open_session("local[1]", records=0, jvm=jvm)
        seen = {
            "opened before": session.sparkContext.startTime <= opened_ms,
            "started by PySpark": session.sparkContext._gateway.proc is not None,
            "accumulator": session.sparkContext._javaAccumulator,
            "setting": session.conf.get("spark.sql.codegen.factoryMode"),
            "rows": session.range(3).count(),
        }
        session.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
