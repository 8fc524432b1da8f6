"""A driver that prints the number of its JVM's process, and then stands still."""

from __future__ import annotations

import time

from tidegate.spark import driver
from tidegate.spark.session import open_session


def main() -> None:
    open_session("local[1]")
    print(driver._attached[0].pid, flush=True)  # not one that PySpark has started
    time.sleep(600)


if __name__ == "__main__":
    main()
