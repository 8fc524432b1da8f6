"""Connections: a pipeline file names them, and their addresses and logins are set where tidegate runs."""

from __future__ import annotations

from typing import Literal, NamedTuple


def qualified(connection: str | None, name: str) -> str:
    """Return a topic or table with its connection. Topics and tables have no colon, so the result is
    unambiguous.

    >>> qualified("reports", "stock"), qualified(None, "stock")
    ('reports:stock', 'stock')
    """
    return f"{connection}:{name}" if connection else name


class Connection(NamedTuple):
    """A Kafka cluster, a database of SQL sinks, a schema registry, an endpoint of HTTP sinks, an Iceberg
    catalog or a server of ClickHouse, by its name in the pipeline file.

    The name None is the connection without a name.

    >>> Connection("kafka", "reports").variable
    'TIDEGATE_KAFKA_REPORTS'
    """

    kind: Literal["kafka", "sql", "registry", "http", "iceberg", "clickhouse"]
    name: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable that has its address."""
        return "_".join(filter(None, ("TIDEGATE", self.kind.upper(), (self.name or "").upper())))

    @property
    def airflow_id(self) -> str:
        """The id of its connection in Airflow."""
        return self.variable.lower()
