"""The Spark session of a batch: opened here, or given by spark-submit or a process that keeps one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidegate.errors import SettingsInvalid, SetupFailed, SparkLost
from tidegate.extras import check_spark_packages
from tidegate.signals import same_interrupt
from tidegate.spark import connect
from tidegate.spark.java import driver_options, find_java, java_home

_CORES_UNKNOWN = 8
_LOGGER_OF_FAILED_QUERIES = "SQLQueryContextLogger"
"""It writes the error of an expression to the terminal, as JSON with the JVM's stack; `translated` reports
it.
"""

_FEW_CORES = 4

SETTINGS = {
    # Partition numbers are chosen per batch; adaptive execution would plan small shuffles twice.
    "spark.sql.adaptive.enabled": "false",
    # What goes to Python at once. Wide values, and whole records (in quarantine), travel in it.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
}
"""Settings of a batch in any session."""

_BYTES_AT_ONCE = "spark.sql.execution.arrow.maxBytesPerBatch"
_BOUND, _NO_BOUND = str(16 * 1024 * 1024), str(2**31 - 1)
_FEW_RECORDS = 1_000_000
"""Spark checks the bytes after each row, which is too slow for a large batch. There wide records are spread,
since rows are in the order of hashes.
"""

_STANDALONE, _MASTER_PORT = "spark://", 7077
_MASTER = re.compile(
    r"local(?:\[(?:\d+|\*)(?:, *\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|k8s://\S+"
    r"|spark://[^\s/,:]+(?::\d+)?(?:,[^\s/,:]+(?::\d+)?)*"
)

_NEW_SESSION_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}
_LOCAL_WORKER_SETTINGS = {"spark.python.daemon.module": "tidegate.spark.daemon"}
"""Not for a cluster's workers, which may get tidegate only with their first task."""


def open_session(
    master: str | None = None,
    memory: str | None = None,
    java_options: Sequence[str] | None = None,
    name: str | None = None,
    records: int | None = None,
) -> SparkSession:
    """Open a session.

    Raises SetupFailed if Java is missing or does not start, SettingsInvalid if `master` is not a master,
    SparkLost if it does not answer, and the errors of `connect` and `check_spark_packages`.

    Args:
        master: None: spark-submit has set it and all other settings; `sc://host:port`: a Spark Connect
            server.
        memory: the heap of a driver that starts here, such as `2g`; None: Spark's default.
        java_options: options of its JVM; None: options for a batch of `records`.
        name: the name under which a Connect server keeps the session.
        records: the size of the batch.
    """
    check_spark_packages()
    PySparkLogger.getLogger(_LOGGER_OF_FAILED_QUERIES).disabled = True
    if master is not None and master.startswith(connect.SCHEME):
        return connect.connect(master, name)
    if master is not None:
        _require_master(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    own = _own_process(master, memory, java_options, records) if master else {"spark.log.level": "ERROR"}
    # Under spark-submit the master is in its configuration.
    if (master or SparkConf().get("spark.master", "")).startswith("local"):
        own |= _LOCAL_WORKER_SETTINGS
    for name, value in (_NEW_SESSION_SETTINGS | own).items():
        builder = builder.config(name, value)
    try:
        with same_interrupt():
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SetupFailed(
            "Java did not start; its message is above",
            "Set TIDEGATE_SPARK_MEMORY to no more than this machine can give, or correct JAVA_HOME.",
        ) from error
    return session


def _require_master(master: str) -> None:
    """Check a master that Spark would only refuse after more than a minute, or in Java's words.

    Raises SettingsInvalid if the text is no master, SparkLost if a standalone master does not answer.
    """
    if not _MASTER.fullmatch(master):
        raise SettingsInvalid(
            f"{master!r} is no master of Spark",
            "Write `local[*]`, `spark://host:7077`, `yarn`, `k8s://https://host:443`, or, of a Spark Connect "
            "server, `sc://host:15002`.",
        )
    if master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys():
        raise SettingsInvalid(
            "The Spark master is `yarn`, and nothing says where YARN is",
            "Set HADOOP_CONF_DIR to the folder of its configuration, or name another master.",
        )
    if master.startswith(_STANDALONE):
        places = master.removeprefix(_STANDALONE).split(",")
        errors = [connect.connection_error(f"{_STANDALONE}{place}", _MASTER_PORT) for place in places]
        # Of several masters only one is active, so one that answers is enough.
        if all(errors):
            reasons = ", ".join(f"{place}: {error}" for place, error in zip(places, errors, strict=True))
            raise SparkLost(
                f"No Spark master answers ({reasons})",
                "Start it, or correct its address; then run again, nothing is lost.",
            )


class OwnSession:
    """The session of one batch, opened when it is needed, and ended in the background, since Spark's workers
    hold memory that later steps can use. A context manager.

    A session that existed before stays, and so does a session that a server keeps under a name.

    Args:
        master: as for `open_session`.
        memory: as for `open_session`.
        name: the name under which a Connect server keeps the session.
    """

    def __init__(self, master: str, memory: str | None, name: str | None = None) -> None:
        self._master = master
        self._memory = memory
        self._name = name
        self._session: SparkSession | None = None
        self._ending: Thread | None = None

    def __enter__(self) -> OwnSession:
        return self

    def __exit__(self, type_: type[BaseException] | None, *_: object) -> None:
        if type_ is not None:
            return  # the process is about to end, and Spark with it
        self.end()
        if self._ending is not None:
            self._ending.join()

    def open(self, records: int) -> SparkSession:
        """Return the session for a batch with this number of records. Raises as `open_session`."""
        # A session of spark-submit or of a notebook is not ended here: others may use it.
        is_own = SparkSession.getActiveSession() is None
        session = open_session(self._master, self._memory, name=self._name, records=records)
        self._session = session if is_own and not self._stays_on_server() else None
        return session

    def _stays_on_server(self) -> bool:
        """Return whether a server keeps the session for the next batch."""
        is_named = self._name is not None and self._master.startswith(connect.SCHEME)
        return is_named or connect.names_session(self._master)

    def end(self) -> None:
        """End the session without waiting for Spark."""
        session, self._session = self._session, None
        if session is not None:
            self._ending = Thread(target=_stop, args=[session], name="stop Spark")
            self._ending.start()


def _stop(session: SparkSession) -> None:
    with suppress(Py4JError, PySparkException, OSError):  # a lost Spark has stopped already
        session.stop()


def _own_process(
    master: str, memory: str | None, java_options: Sequence[str] | None, records: int | None
) -> dict[str, str]:
    """Return the settings that spark-submit would give."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java_home(java))
    # Quiet from the start: otherwise Spark's log fills the user's screen.
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    own = driver_options(java, records) if java_options is None else java_options
    options = " ".join([quiet, *own, *_collector(master)])
    conf = {"spark.master": master, "spark.app.name": "tidegate", "spark.driver.extraJavaOptions": options}
    if memory is not None:
        conf["spark.driver.memory"] = memory
    if master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return conf


def _collector(master: str) -> list[str]:
    """Choose the serial collector on few cores: it saves a batch time and 300 MB beside the JVM's
    own choice.
    """
    cores = _local_cores(master)
    return ["-XX:+UseSerialGC"] if cores is not None and cores <= _FEW_CORES else []


def prepare(spark: SparkSession, records: int) -> None:
    """Set the options of a session that make a batch with this number of records fast.

    Args:
        spark: the session.
        records: the size of the batch; up to a million, what goes to Python at once is bounded in bytes, too.
    """
    at_once = {_BYTES_AT_ONCE: _BOUND if records <= _FEW_RECORDS else _NO_BOUND}
    for name, value in (SETTINGS | at_once).items():
        spark.conf.set(name, value)


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings for a while, and restore them. Sessions of Spark Connect have no `newSession`.

    Example::

        with changed(spark, {"spark.sql.shuffle.partitions": "1"}):
            frame.collect()
    """
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks can run at once; 8 if a cluster's settings do not say."""
    for name in ("spark.default.parallelism", "spark.cores.max"):
        if number := spark.conf.get(name, None):
            return int(number)
    return _local_cores(spark.conf.get("spark.master", None) or "") or _CORES_UNKNOWN


def _local_cores(master: str) -> int | None:
    """Return the cores of a `local` master; None for any other."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?", master)
    if local is None:
        return None
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
