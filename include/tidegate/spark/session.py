"""The Spark session of a batch: opened here, or given by spark-submit or a process that keeps one."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidegate.errors import SettingsInvalid, SparkLost
from tidegate.extras import check_spark_packages
from tidegate.spark import connect
from tidegate.spark.driver import (
    DriverJvm,
    DriverSettings,
    driver_settings,
    java_did_not_start,
    local_cores,
    open_java_session,
    session_conf,
)

_CORES_UNKNOWN = 8
_LOGGER_OF_FAILED_QUERIES = "SQLQueryContextLogger"
"""It writes the error of an expression to the terminal, as JSON with the JVM's stack; `translated` reports
it.
"""

SETTINGS = {
    # Partition numbers are chosen per batch; adaptive execution would plan small shuffles twice.
    "spark.sql.adaptive.enabled": "false",
    # What goes to Python at once. Wide values, and whole records (in quarantine), travel in it.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
}
"""Settings of a batch in any session."""

_BYTES_AT_ONCE = "spark.sql.execution.arrow.maxBytesPerBatch"
_BOUND, _NO_BOUND = str(16 * 1024 * 1024), str(2**31 - 1)
_BATCHES_BOUND = str(4 * 1024 * 1024)
"""Row batches that come to Python at once share their memory: it is free when the last of them is."""
_FEW_RECORDS = 1_000_000
"""Spark checks the bytes after each row, which is too slow for a large batch. There wide records are spread,
since rows are in the order of hashes.
"""

_STANDALONE, _MASTER_PORT = "spark://", 7077
_MASTER = re.compile(
    r"local(?:\[(?:\d+|\*)(?:, *\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|k8s://\S+"
    r"|spark://[^\s/,:]+(?::\d+)?(?:,[^\s/,:]+(?::\d+)?)*"
)

_MODE = "spark.sql.codegen.factoryMode"
_FEW_ROWS = 200_000
"""Below, Java code for a batch takes longer to compile than the batch saves by it."""


def open_session(
    master: str | None = None,
    memory: str | None = None,
    name: str | None = None,
    records: int | None = None,
    jvm: DriverJvm | None = None,
) -> SparkSession:
    """Open a session.

    Raises SetupFailed if Java is missing or does not start, SettingsInvalid if `master` is not a master,
    SparkLost if it does not answer, and the errors of `connect` and `check_spark_packages`.

    Args:
        master: None: spark-submit has set it and all other settings; `sc://host:port`: a Spark Connect
            server.
        memory: the heap of a driver that starts here, such as `2g`; None: Spark's default.
        name: the name under which a Connect server keeps the session.
        records: about how many records Spark gets as rows, if the session is for one batch.
        jvm: the JVM of a driver that starts here, which may have been started; None: a new one.
    """
    check_spark_packages()
    PySparkLogger.getLogger(_LOGGER_OF_FAILED_QUERIES).disabled = True
    logging.getLogger().addFilter(is_no_interrupt)
    if master is not None and master.startswith(connect.SCHEME):
        return connect.connect(master, name)
    if master is not None:
        _require_master(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jvm = jvm or DriverJvm()
    builder, conf = SparkSession.builder, SparkConf()
    for setting, value in _settings(master, memory, records, jvm).items():
        builder, conf = builder.config(setting, value), conf.set(setting, value)
    try:
        with jvm.attached():
            if "SPARK_REMOTE" not in os.environ:
                open_java_session(conf)
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise java_did_not_start() from error


def is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return whether a record of a log is not about Ctrl-C. py4j logs it, with its stack, during a call."""
    return not record.exc_info or record.exc_info[0] is not KeyboardInterrupt


def _settings(master: str | None, memory: str | None, records: int | None, jvm: DriverJvm) -> dict[str, str]:
    """Return the settings of a new session, and start the JVM if it is on this machine only."""
    if master is None:  # under spark-submit the master is in its configuration
        return {**session_conf(SparkConf().get("spark.master", "")), "spark.log.level": "ERROR"}
    driver = _start(master, memory, records, jvm)
    few = records is not None and records <= _FEW_ROWS
    return {**driver.conf, **({_MODE: "NO_CODEGEN"} if few else {})}


def _start(master: str, memory: str | None, records: int | None, jvm: DriverJvm) -> DriverSettings:
    """Return the settings of a driver, and start its JVM if all of Spark is on this machine."""
    driver = driver_settings(master, memory, records, jvm.java_options, jvm.conf)
    if master.startswith("local"):
        jvm.start(driver)
    return driver


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
        jvm: as for `open_session`.
    """

    def __init__(
        self, master: str, memory: str | None, name: str | None = None, jvm: DriverJvm | None = None
    ) -> None:
        self._master = master
        self._memory = memory
        self._name = name
        self._driver_jvm = jvm
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

    @property
    def starts_here(self) -> bool:
        """Whether the session's driver is started here, and does not run in a Spark Connect server."""
        return not self._master.startswith(connect.SCHEME)

    def start(self, records: int) -> None:
        """Start the JVM for a batch of about so many rows, if it is one of this machine. It opens its session
        while this process does something else.

        Raises SetupFailed without a Java.
        """
        if self._driver_jvm is not None and self.starts_here:
            _start(self._master, self._memory, records, self._driver_jvm)

    def open(self, records: int) -> SparkSession:
        """Return the session for a batch of about so many rows, or the one that is open. Raises as
        `open_session`.
        """
        if self._session is not None:  # the batch's computation has opened it, and its publication goes on
            return self._session
        # A session of spark-submit or of a notebook is not ended here: others may use it.
        is_own = SparkSession.getActiveSession() is None
        session = open_session(self._master, self._memory, self._name, records, self._driver_jvm)
        self._session = session if is_own and not self._stays_on_server() else None
        return session

    def _stays_on_server(self) -> bool:
        """Return whether a server keeps the session for the next batch."""
        is_named = self._name is not None and not self.starts_here
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


def prepare(spark: SparkSession, records: int, partitions: int, in_batches: bool) -> None:
    """Set the options of a session that make a batch with this number of records fast.

    Args:
        spark: the session.
        records: the size of the batch; up to a million, what goes to Python at once is bounded in bytes, too.
        partitions: the partitions in which Spark joins and groups. By default they are 200, and most of them
            are empty: for a table of a few rows, they take longer than the whole batch.
        in_batches: whether rows go to their tasks in row batches: a few of them have many bytes.
    """
    bound = _BATCHES_BOUND if in_batches else _BOUND if records <= _FEW_RECORDS else _NO_BOUND
    at_once = {_BYTES_AT_ONCE: bound}
    joins = {"spark.sql.shuffle.partitions": str(partitions)}
    for name, value in (SETTINGS | at_once | joins).items():
        spark.conf.set(name, value)


def compile_expressions(spark: SparkSession) -> None:
    """Let Spark compile a pipeline's expressions, in each session in the same way."""
    spark.conf.unset(_MODE)


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
    return local_cores(spark.conf.get("spark.master", None) or "") or _CORES_UNKNOWN
