"""`tidegate ui`: the console without Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidegate.cli.output import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.app import App, OpenSession

DEFAULT_PORT = 8642


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port; 0 takes a free one.",
)
def ui(port: int) -> None:
    """Serve the pages about all pipelines on this machine, read-only and without Airflow."""
    from tidegate.console.local import ADDRESS, listen, serve
    from tidegate.settings import Settings

    Settings.from_environment()  # a wrong setting is an error now, and not on each page
    listener = listen(port)
    say(f"The pages are at http://{ADDRESS}:{listener.getsockname()[1]}/. Ctrl-C ends this.")
    serve(listener, _sessions)


def _sessions(app: App) -> OpenSession:
    """Return what opens a Spark session for a page: where `tidegate explain` has its session, too."""

    def open_session(records: int) -> SparkSession:
        from tidegate.cli.master import spark_master
        from tidegate.spark import session  # late: pages without records need no Spark

        settings = app.settings
        return session.open_session(spark_master(settings), settings.spark_memory, records=records)

    return open_session
