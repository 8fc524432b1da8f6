"""`python -m tidegate.spark.daemon`: Spark's daemon of Python workers, with all their imports done.

Workers are forks of it. Without it, each worker imports everything anew, and from Spark's zip file of
PySpark, whose modules each daemon compiles again, and whose index is read again before each task.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path

from tidegate.imports import keep_pandas_out

_M_ARENA_MAX = -8  # of malloc.h


def main() -> None:
    """Fork workers until Spark ends."""
    # As PySpark's manager does, but also during the imports: a terminal sends Ctrl-C to this process too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_installed_pyspark()
    from pyspark import daemon  # imported late: the line before decides from which place

    keep_pandas_out()
    from tidegate.spark import decoding, kernel_task, source, written

    del decoding, kernel_task, source, written
    # The collector does not touch frozen objects, so workers go on sharing their memory after the fork.
    gc.freeze()
    share_arenas()
    daemon.manager()


def share_arenas() -> None:
    """Make all threads but the first share one heap.

    glibc gives them up to eight heaps per core, and the threads that the Kafka client starts for the next
    batch do not reuse what the threads before have freed in theirs.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another libc has no arenas
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)


def prefer_installed_pyspark() -> None:
    """Import PySpark from its installation, if that is the home of the running Spark.

    Spark also puts one of its jars on Python's path. Before each task PySpark lets Python look again where it
    imports from, and then each zip file that was ever looked into is read, which can take a tenth
    of a second.
    """
    home = Path(os.environ.get("SPARK_HOME", "")).resolve()
    zips = [
        path for path in sys.path if path.endswith((".zip", ".jar")) and home in Path(path).resolve().parents
    ]
    sys.path[:] = [path for path in sys.path if path not in zips]
    installed = importlib.util.find_spec("pyspark")
    # The zip file belongs to the running Spark: another installation must not take its place.
    if installed is None or Path(installed.origin or "").parent.resolve() != home:
        sys.path[:0] = zips
        return
    for path in [path for path in sys.path_importer_cache if path.startswith(tuple(zips))]:
        del sys.path_importer_cache[path]


if __name__ == "__main__":
    main()
