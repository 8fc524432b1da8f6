"""Options for the JVM of a Spark driver that make small batches faster."""

from __future__ import annotations

from pathlib import Path

from tidegate.local.class_archive import archive_options

FEW_RECORDS = 1_000_000
"""A batch of up to so many records ends before the JVM's second compiler (C2) has saved the time that it
costs.
"""

FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""Options that use the JVM's first compiler (C1) only: its code is ready at once, while the second one
compiles during hundreds of batches. The default code cache for this mode has 48 MB, which Spark nearly fills;
the JVM does not compile beyond it.
"""


def driver_options(java: Path | None, records: int | None = None) -> list[str]:
    """Return the JVM options of a Spark driver.

    Args:
        java: The `java` that runs the driver; None if there is none.
        records: The number of records of the driver's only batch; None for batches of any size.
    """
    first_compiler = FIRST_COMPILER if records is not None and records <= FEW_RECORDS else ()
    return [*archive_options(java), *first_compiler]
