"""Options for the JVM of a Spark driver: an archive of Spark's classes, and the compiler for small batches.

The archive has the classes that the JVM loads for a batch, parsed and verified once for all starts. Spark
loads some twenty thousand classes before its first row, which takes half of a cold start. With
`-XX:SharedArchiveFile` the JVM maps them from an archive instead. The JVM checks that the archive fits this
Java and these jars, and continues without the archive if it does not, so only the time of a start depends on
it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from importlib.metadata import distribution, version
from pathlib import Path

from tidegate.spark.java import find_java

FEW_RECORDS = 1_000_000
"""A batch of up to so many records ends before the JVM's second compiler (C2) has saved the time that it
costs.
"""

FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""Options that use the JVM's first compiler (C1) only: its code is ready at once, while the second one
compiles during hundreds of batches. The default code cache for this mode has 48 MB, which Spark nearly fills;
the JVM does not compile beyond it.
"""

# Without these options the JVM prints to standard output which classes it leaves out, and why an archive does
# not fit.
_QUIET = ("-Xshare:auto", "-Xlog:cds*=off", "-Xlog:class+path=off")


def driver_options(java: Path | None, records: int | None = None) -> list[str]:
    """Return the JVM options of a Spark driver.

    Args:
        java: The `java` that runs the driver; None if there is none.
        records: The number of records of the driver's only batch; None for batches of any size.
    """
    first_compiler = FIRST_COMPILER if records is not None and records <= FEW_RECORDS else ()
    return [*archive_options(java), *first_compiler]


def archive_options(java: Path | None) -> list[str]:
    """Return the JVM options that use the archive; an empty list if no archive was made for this `java`."""
    archive = archive_path(java) if java is not None else None
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive is not None and archive.is_file() else []


def training_options(archive: Path) -> list[str]:
    """Return the JVM options that write such an archive to `archive` when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]


def archive_path(java: Path) -> Path:
    """Return the path of the archive for a `java` program and the installed pyspark.

    The file may not exist yet.
    """
    program = java.resolve()
    # The JVM refuses an archive of older files: after an update the name changes, and a new one is made.
    modified_ns = [path.stat().st_mtime_ns for path in (program, _spark_jar())]
    digest = hashlib.sha256(f"{program} {modified_ns} {version('pyspark')}".encode()).hexdigest()
    return Path(sys.prefix) / "share" / "tidegate" / f"spark-{digest[:16]}.jsa"


def _spark_jar() -> Path:
    """Return one of Spark's jars.

    The JVM refuses an archive if the jars were modified after it was written.
    """
    return next(Path(str(distribution("pyspark").locate_file("pyspark/jars"))).glob("spark-core_*.jar"))


def submitting_java() -> Path | None:
    """Return the `java` that spark-submit runs: the one of JAVA_HOME, or the first on PATH; None
    without any.
    """
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        return java if java.is_file() else None
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


if __name__ == "__main__":
    print(archive_path(find_java()))
