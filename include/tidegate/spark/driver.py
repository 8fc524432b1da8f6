"""The driver of a Spark that tidegate starts: its settings, its JVM, and the session in the JVM.

PySpark starts the JVM by `spark-submit`, which first starts another JVM, only to compose a command. Here a
JVM starts by the command that the training has noted (see `java`), and opens its session. Neither needs
PySpark, so both go on while a command does its imports.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from typing import TYPE_CHECKING, Any

from tidegate.errors import SetupFailed
from tidegate.signals import same_interrupt
from tidegate.spark.java import driver_options, find_java, java_home, noted_launch

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

_FEW_CORES = 4
_DEFAULT_MEMORY = "1g"
"""Spark's own default."""
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's variable for more options of a driver's JVM."""
_MEMORY = "spark.driver.memory"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COMMAND_SETTINGS = {
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.defaultJavaOptions",
}
"""Settings that change the command of a driver's JVM in ways that only spark-submit knows."""
_HARMLESS_VARIABLES = {
    _OPTIONS,
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_LOCAL_DIRS",
    "SPARK_LOCAL_IP",
}
"""The other variables of Spark may change what spark-submit starts."""
_POLL_SECONDS = 0.01
_NEW_SESSION = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    # PySpark notes for each column which line of Python made it, for messages that no user of tidegate sees:
    # half of what a small batch costs its driver in Python. Static: a session of a server has the server's.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_PYSPARK_DEFAULTS = {
    "spark.serializer.objectStreamReset": "100",
    "spark.rdd.compress": "True",
    "spark.sql.artifact.isolation.enabled": "false",
}
"""The settings that PySpark gives to a context which it makes itself."""
_LOCAL_WORKERS = {
    # not for a cluster's workers, which may get tidegate only with their first task
    "spark.python.daemon.module": "tidegate.spark.daemon",
    # Spark looks at these checksums only after it has found damage, to tell a disk from a network.
    "spark.shuffle.checksum.enabled": "false",
}
"""The settings of a session whose workers are on this machine."""
_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"


@dataclass(frozen=True)
class DriverSettings:
    """The settings of a driver that starts here.

    Args:
        java: the program that runs it.
        java_options: options of its JVM.
        memory: its heap, such as `2g`.
        conf: Spark's settings.
    """

    java: Path
    java_options: tuple[str, ...]
    memory: str
    conf: Mapping[str, str]


def driver_settings(
    master: str,
    memory: str | None,
    records: int | None,
    java_options: Sequence[str] | None = None,
    more: Mapping[str, str] | None = None,
) -> DriverSettings:
    """Return the settings that spark-submit would give to a driver. Raises SetupFailed without a Java.

    Args:
        master: Spark's master.
        memory: the heap; None: Spark's default.
        records: about how many rows Spark gets in the driver's only batch; None: any number.
        java_options: options of the JVM; None: options for such a batch.
        more: Spark's settings that the user has set.
    """
    more = more or {}
    java = find_java()
    os.environ["JAVA_HOME"] = str(java_home(java))
    # Quiet from the start: otherwise Spark's log fills the user's screen.
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    own = driver_options(java, records) if java_options is None else java_options
    # The user's options come last: of a repeated option, the JVM takes the last one.
    options = (quiet, *own, *_collector(master), *shlex.split(more.get(_JAVA_OPTIONS, "")))
    conf = {
        **_PYSPARK_DEFAULTS,
        **session_conf(master),
        "spark.app.name": "tidegate",
        **more,
        "spark.master": master,
        _JAVA_OPTIONS: " ".join(options),
    }
    if memory is not None:
        conf[_MEMORY] = memory
    if master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return DriverSettings(java, options, conf.get(_MEMORY, _DEFAULT_MEMORY), conf)


def session_conf(master: str) -> dict[str, str]:
    """Return Spark's settings of a new session with a master, whatever has started its driver."""
    return _NEW_SESSION | _LOCAL_WORKERS if master.startswith("local") else dict(_NEW_SESSION)


def _collector(master: str) -> list[str]:
    """Choose the serial collector on few cores: it saves a batch time and 300 MB beside the JVM's
    own choice.
    """
    cores = local_cores(master)
    return ["-XX:+UseSerialGC"] if cores is not None and cores <= _FEW_CORES else []


def local_cores(master: str) -> int | None:
    """Return the cores of a `local` master; None for any other."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?", master)
    if local is None:
        return None
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


class DriverJvm:
    """The JVM of this process's driver. A context manager, which ends a JVM that no session needs.

    Args:
        java_options: its options; None: options for the driver's batch.
        conf: Spark's settings that the user has set.

    Example::

        with DriverJvm() as jvm:
            jvm.start(settings)
            ...  # imports
            with jvm.attached():
                session = builder.getOrCreate()
    """

    def __init__(
        self, java_options: Sequence[str] | None = None, conf: Mapping[str, str] | None = None
    ) -> None:
        self.java_options = java_options
        self.conf = dict(conf or {})
        self._settings: DriverSettings | None = None
        self._process: Popen[bytes] | None = None
        self._folder: Path | None = None
        self._opening: Thread | None = None

    def __enter__(self) -> DriverJvm:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self, settings: DriverSettings) -> None:
        """Start the JVM, which then opens its session, if it does not run with these settings already.

        Does nothing if PySpark has a JVM already, or if spark-submit may start another one: nothing is noted,
        Spark has settings of its own on this machine, or a setting of the user needs spark-submit.
        """
        if settings == self._settings or _has_gateway():
            return
        self._end()
        launch = noted_launch(settings.java)
        if launch is None or _is_configured() or _COMMAND_SETTINGS & settings.conf.keys():
            return
        self._settings, self._folder = settings, Path(tempfile.mkdtemp(prefix="tidegate-"))
        more = shlex.split(os.environ.get(_OPTIONS, ""))
        options = [f"-Xmx{settings.memory}", *more, *settings.java_options, *launch.options]
        conf = [part for name, value in settings.conf.items() for part in ("--conf", f"{name}={value}")]
        command = [
            str(settings.java),
            "-cp",
            launch.class_path,
            *options,
            _SUBMIT,
            *conf,
            "pyspark-shell",
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": str(_spark_home()),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection_file),
        }
        # The JVM ends with its standard input, hence with this process. Ctrl-C is for this process alone.
        self._process = Popen(command, stdin=PIPE, env=environment, preexec_fn=_ignore_interrupts)
        self._opening = Thread(target=self._open_session, args=[self._process], daemon=True)
        self._opening.start()

    def _open_session(self, process: Popen[bytes]) -> None:
        """Let the JVM open its context and session. What fails here is tried again by PySpark, and
        reported.
        """
        from py4j.protocol import Py4JError  # late: a command that ends before has no use for it

        if self._wait(process):
            with suppress(Py4JError, OSError):
                gateway = _gateway(*_connection(self._connection_file.read_bytes()))
                _open_session_in(gateway.jvm)
                gateway.close()

    def _wait(self, process: Popen[bytes]) -> bool:
        """Wait until the JVM can be connected to. Return False if it has ended."""
        while not self._connection_file.is_file():
            if process.poll() is not None:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Let PySpark use the JVM for a context that it makes within the block, and leave the JVM to it.

        Raises SetupFailed if the JVM has ended.
        """
        if self._process is None:
            yield
            return
        if not self._wait(self._process):
            raise java_did_not_start()
        self._wait_for_session()
        port, secret = _connection(self._connection_file.read_bytes())
        self._remove_folder()
        address = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ |= address
        try:
            yield
        finally:
            for name in address:
                del os.environ[name]
            _attached.append(self._process)
            self._process = None

    @property
    def _connection_file(self) -> Path:
        assert self._folder is not None
        return self._folder / "connection"

    def _wait_for_session(self) -> None:
        if self._opening is not None:
            self._opening.join()
            self._opening = None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._wait_for_session()
        self._remove_folder()
        self._settings = self._process = None

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


_attached: list[Popen[bytes]] = []
"""The JVM that PySpark uses until this process ends: an object that is freed closes its standard input."""


def java_did_not_start() -> SetupFailed:
    """Return the error of a JVM that has ended at once."""
    return SetupFailed(
        "Java did not start; its message is above",
        "Set TIDEGATE_SPARK_MEMORY to no more than this machine can give, or correct JAVA_HOME.",
    )


def _has_gateway() -> bool:
    """Return whether PySpark is connected to a JVM, to which it keeps until this process ends."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _connection(text: bytes) -> tuple[int, str]:
    """Return the port and the secret that the JVM has written."""
    port, length = struct.unpack_from("!ii", text)
    return port, text[8 : 8 + length].decode()


def _spark_home() -> Path:
    """Return the folder of the installed PySpark, without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _is_configured() -> bool:
    """Return whether files or variables may tell spark-submit to start another JVM than the noted one."""
    variables = (name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")))
    return any(name not in _HARMLESS_VARIABLES for name in variables) or (_spark_home() / "conf").exists()


def open_java_session(conf: SparkConf) -> None:
    """Open the JVM's session, unless it is open already, and let PySpark use its context."""
    context = _context(conf)
    _open_session_in(context._jvm)


def _context(conf: SparkConf) -> SparkContext:
    """Return PySpark's context, if need be a new one of that which the JVM has."""
    from pyspark import SparkConf, SparkContext  # late: see above

    SparkContext._ensure_initialized(conf=conf)
    if SparkContext._active_spark_context is not None:
        return SparkContext.getOrCreate(conf)
    jvm: Any = SparkContext._jvm
    java_conf: Any = SparkConf(_jvm=jvm).setAll(conf.getAll())
    # PySpark itself would let the JVM make a second context, which it refuses.
    java_context = jvm.org.apache.spark.SparkContext.getOrCreate(java_conf._jconf)
    with same_interrupt():
        context = SparkContext(conf=java_conf, jsc=jvm.JavaSparkContext.fromSparkContext(java_context))
    _leave_out_accumulators(context)
    if local_cores(context.master) is not None:
        Thread(target=_start_workers, args=[context], name="start Python workers", daemon=True).start()
    return context


def _start_workers(context: SparkContext) -> None:
    """Let Spark start its daemon of Python workers while the batch is planned: the daemon's imports take half
    a second, and Spark would wait for them in the first task.

    Spark has a daemon for each environment of its workers. Those of SQL ask for short tracebacks by a
    variable, and those of an RDD do not.
    """
    context.environment["SPARK_SIMPLIFIED_TRACEBACK"] = "1"
    with suppress(Exception):  # whatever fails here, fails in the first task too, and is reported there
        context.parallelize([0], 1).mapPartitions(iter).collect()


def _leave_out_accumulators(context: Any) -> None:
    """Let jobs have no accumulators of Python, as in Spark Connect: no task of tidegate adds to one.

    Otherwise Spark sends them to this process at the end of each task and waits for its answer, and the end
    of the context waits a second for the server that answers.
    """
    context._javaAccumulator = None
    Thread(target=context._accumulatorServer.shutdown, daemon=True).start()


def _gateway(port: int, secret: str) -> Any:
    """Return a connection to the JVM beside that of PySpark."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # late: see above

    java = JavaParameters(port=port, auth_token=secret, auto_convert=True)
    return ClientServer(java_parameters=java, python_parameters=PythonParameters(port=0, eager_load=False))


def _open_session_in(jvm: Any) -> None:
    """Open a JVM's context, and its session without the functions that Spark's MLlib adds to it.

    MLlib describes them by Scala's reflection, which takes a second of a processor, and no expression can use
    them. Spark finds MLlib, as all that adds to sessions, by the class loader of the calling thread. Opens no
    session if something else may add to it.
    """
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    thread = jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    if context.getConf().contains("spark.sql.extensions") or not _only_mllib_adds(loader):
        return
    builder = jvm.org.apache.spark.sql.classic.SparkSession.builder()
    thread.setContextClassLoader(jvm.java.lang.ClassLoader.getPlatformClassLoader())
    try:
        builder.getOrCreate()
    finally:
        thread.setContextClassLoader(loader)


def _only_mllib_adds(loader: Any) -> bool:
    """Return whether nothing but MLlib on the class path adds to sessions."""
    providers = loader.getResources(_PROVIDERS)
    while providers.hasMoreElements():
        if "/spark-mllib_" not in providers.nextElement().toString():
            return False
    return True
