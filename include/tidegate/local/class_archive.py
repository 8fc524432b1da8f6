"""An archive of the classes that Spark's JVM loads for a batch, parsed and verified once for all starts.

Spark loads some twenty thousand classes before its first row, which takes half of a cold start. The JVM maps
them from an archive instead (`-XX:SharedArchiveFile`). It checks that the archive fits this Java and these
jars, and goes on without where it does not; nothing but time depends on it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from importlib.metadata import distribution, version
from pathlib import Path

# Else the JVM says on standard output which classes it leaves out, and why an archive does not fit.
_QUIET = ("-Xshare:auto", "-Xlog:cds*=off", "-Xlog:class+path=off")


def archive_options(java: Path | None) -> list[str]:
    """What a JVM that is about to run Spark is told; nothing where no archive was made for this `java`."""
    archive = archive_path(java) if java is not None else None
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive is not None and archive.is_file() else []


def training_options(archive: Path) -> list[str]:
    """What a JVM is told that is to write such an archive when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]


def archive_path(java: Path) -> Path:
    """Where the archive lies that fits a `java` program and the installed pyspark."""
    program = java.resolve()
    made = [path.stat().st_mtime_ns for path in (program, _spark_jar())]
    fitting = hashlib.sha256(f"{program} {made} {version('pyspark')}".encode()).hexdigest()
    return Path(sys.prefix) / "share" / "tidegate" / f"spark-{fitting[:16]}.jsa"


def _spark_jar() -> Path:
    """One of the jars: the JVM takes an archive for another's once they are written anew."""
    return next(Path(str(distribution("pyspark").locate_file("pyspark/jars"))).glob("spark-core_*.jar"))


def submitting_java() -> Path | None:
    """The `java` that spark-submit takes: JAVA_HOME's, or the first of PATH."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        return java if java.is_file() else None
    found = shutil.which("java")
    return Path(found) if found else None


if __name__ == "__main__":
    from tidegate.local.java import find_java

    print(archive_path(find_java()))
