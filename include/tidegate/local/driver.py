"""What the JVM of a Spark driver is told, so that a batch is soon done."""

from __future__ import annotations

from pathlib import Path

from tidegate.local.class_archive import archive_options

FEW_RECORDS = 1_000_000
"""Up to here a batch is over before the code of the JVM's second compiler has paid for what it costs."""


FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""Its code is ready at once, and stays as it is: the second compiler is at work for hundreds of batches.
By itself it has 48 MB for its code, which Spark nearly fills; what is beyond is not compiled.
"""


def driver_options(java: Path | None, records: int | None = None) -> list[str]:
    """Of a driver that this `java` runs, for a batch of so many records; None: for batches of any size."""
    first_compiler = FIRST_COMPILER if records is not None and records <= FEW_RECORDS else ()
    return [*archive_options(java), *first_compiler]
