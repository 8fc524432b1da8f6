"""What a pipeline file names in place of an address and a login: they are set where it runs."""

from __future__ import annotations

from typing import Literal, NamedTuple


def qualified(connection: str | None, name: str) -> str:
    """What is called `name` there: of no topic and no table does it have a colon.

    >>> qualified("reports", "stock"), qualified(None, "stock")
    ('reports:stock', 'stock')
    """
    return f"{connection}:{name}" if connection else name


class Connection(NamedTuple):
    """A Kafka cluster, a SQL sink's database or a schema registry, by its name in the file; None is the one
    without a name.

    >>> Connection("kafka", "reports").variable
    'TIDEGATE_KAFKA_REPORTS'
    """

    kind: Literal["kafka", "sql", "registry"]
    name: str | None = None

    @property
    def variable(self) -> str:
        """The setting in which it is."""
        return "_".join(filter(None, ("TIDEGATE", self.kind.upper(), (self.name or "").upper())))

    @property
    def airflow_id(self) -> str:
        """The same under Airflow: a connection's id."""
        return self.variable.lower()
