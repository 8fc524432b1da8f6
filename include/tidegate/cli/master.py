"""Where a command computes: on the chosen Spark, or on the one that runs for it already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.cli.output import err
from tidegate.settings import OWN_SPARK, Settings

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.ledger import Stream
    from tidegate.spark.driver import DriverJvm
    from tidegate.spark.session import OwnSession


def own_session(app: App, stream: Stream, jvm: DriverJvm | None = None) -> OwnSession:
    """Return a session for batches of a stream, which ends with the command.

    Args:
        jvm: The JVM of a Spark that the command starts for itself; None: a new one.
    """
    from tidegate.spark.session import OwnSession

    master, memory = spark_master(app.settings), app.settings.spark_memory
    return OwnSession(master, memory, app.session_name(stream), jvm)


def spark_master(settings: Settings) -> str:
    """Return Spark's master, and say so if it is not the chosen or the usual one.

    That is TIDEGATE_SPARK_MASTER; without it the Spark Connect server of `tidegate up` in the same
    TIDEGATE_HOME, if it answers; else a Spark that the command starts.
    """
    from tidegate.spark.connect import connection_error  # late: it imports PySpark
    from tidegate.spark_token import kept_server

    if settings.spark_master is not None:
        return settings.spark_master
    server = kept_server(settings.home)
    if server is None or connection_error(server) is not None:
        return OWN_SPARK
    other = f"TIDEGATE_SPARK_MASTER={OWN_SPARK} starts another one"
    err.print(f"Spark is the server of `tidegate up`, {server}; {other}.", markup=False, highlight=False)
    return server
