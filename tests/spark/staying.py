"""A driver that prints the number of its JVM's process, and then stands still."""

from __future__ import annotations

import time

from tidegate.spark import driver
from tidegate.spark.session import open_session


def main() -> None:
    with driver.DriverJvm() as jvm:
        jvm.start(driver.driver_settings("local[1]", None, records=0))
        open_session("local[1]", records=0, jvm=jvm)
        print(driver._attached[0].pid, flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main()
