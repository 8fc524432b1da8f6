"""One Spark JVM that outlives the processes which use it: each connects to it, none starts its own."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.processes import Child, fork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
# The better compiler costs more than it gains, even over hundreds of runs: 6.3 CPU seconds per run, not 5.2.
_JVM = (
    "-XX:+UseSerialGC -Xshare:auto -XX:TieredStopAtLevel=1 "
    # PySpark otherwise asks and tells the JVM, at each call, from which line it comes.
    "-Dspark.python.sql.dataFrameDebugging.enabled=false"
)
# Thirty rows are computed sooner than code for them is generated.
_FOR_SMALL_BATCHES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass
class WarmSpark:
    """The JVM and how to reach it. It ends with the process that keeps it, which ends with this one.

    `own_names` are the names of the objects that py4j held for that process before all others.
    """

    keeper: Child
    port: int
    secret: str
    own_names: tuple[str, ...]

    @classmethod
    def start(cls, log: Path) -> WarmSpark:
        """A JVM with a Spark context, ready for sessions."""
        read_end, theirs = os.pipe()
        keeper = fork(lambda: _keep(theirs), log)
        os.close(theirs)
        with os.fdopen(read_end) as pipe:
            line = pipe.readline().split()
        if len(line) < 3:
            keeper.kill()
            raise RuntimeError(f"Spark did not start; see {log}: {log.read_text()[-2000:]}")
        return cls(keeper, int(line[0]), line[1], tuple(line[2:]))

    def stop(self) -> None:
        """End it."""
        self.keeper.kill()

    def let_go(self) -> None:
        """Free what processes that have ended still hold in the JVM. None that lives may need anything of it.

        py4j keeps an object until its process says that it is done with it; a killed one never does.
        """
        gateway = self._gateway()
        keep = gateway.jvm.java.util.HashSet()
        for name in self.own_names:
            keep.add(name)
        _bindings(gateway).retainAll(keep)

    def _gateway(self) -> Any:
        from pyspark.java_gateway import launch_gateway

        os.environ |= {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}
        return launch_gateway()

    def connect(self, _name: str) -> SparkSession:
        """A session of this process's own on the one Spark context."""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        gateway = self._gateway()
        jvm = gateway.jvm
        context = jvm.org.apache.spark.SparkContext.getOrCreate()
        java = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
        conf = SparkConf(_jvm=jvm, _jconf=context.conf())
        shared = SparkContext(gateway=gateway, jsc=java, conf=conf)
        # As in the product, without Python's accumulators. Spark would send them to the process that began a
        # job, at the end of each task: if that process is stopped, the jobs of all others would wait, too.
        shared._javaAccumulator = None
        session = SparkSession(shared).newSession()
        for name, value in _FOR_SMALL_BATCHES.items():
            session.conf.set(name, value)
        return session


def _keep(write_end: int) -> int:
    from tidegate.spark.session import open_session

    os.environ["JAVA_TOOL_OPTIONS"] = _JVM
    session = open_session(MASTER, "3g")
    session.range(1).count()
    gateway = session.sparkContext._gateway
    assert gateway is not None
    parameters = gateway.java_parameters  # type: ignore[attr-defined]
    with os.fdopen(write_end, "w") as file:
        print(parameters.port, parameters.auth_token, *_bindings(gateway), file=file)
    threading.Event().wait()
    return 0


def _bindings(gateway: Any) -> Any:
    """The names of what py4j holds for Python, as a Java set; what is taken out of it can be collected."""
    return gateway.java_gateway_server.getGateway().getBindings().keySet()
