"""Where things are, from the environment. Nothing secret ever comes from a pipeline file or an argument.

==========================  =======================================================================
TIDEGATE_HOME               one folder for everything that tidegate writes; default `.tidegate` here
TIDEGATE_LEDGER             SQLAlchemy URL; default SQLite in TIDEGATE_HOME
TIDEGATE_LAKE               folder or URI of the files and tables; default `TIDEGATE_HOME/lake`
TIDEGATE_KAFKA              bootstrap servers, or a JSON object of Kafka client properties
TIDEGATE_KAFKA_<CONNECTION> the same, for a source and sinks with `connection: <connection>`
TIDEGATE_SQL                SQLAlchemy URL of the SQL sinks' database
TIDEGATE_SQL_<CONNECTION>   the same, for sinks with `connection: <connection>`
TIDEGATE_PYTHON_MODULES     modules whose functions `equal: {python: …}`, and a Kafka login's callback, may
                            name, with commas; default none
TIDEGATE_PIPELINES          folder of pipeline files; default `include/pipelines`
TIDEGATE_EXPECTATIONS       folder of quality suites; default `expectations` beside the pipelines
TIDEGATE_SPARK_MASTER       master for `tidegate run`, or sc://…; default `local[*]` (Airflow: its connection)
TIDEGATE_SPARK_MEMORY       Java heap of Spark's driver, such as `4g` or `1500m`; default Spark's own, 1g
TIDEGATE_TIME_TRAVEL        for how many days the state as of a batch can be read; default 30
==========================  =======================================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tidegate.broker.config import KafkaConfig
from tidegate.errors import SettingsInvalid
from tidegate.spec.connection import Connection

DEFAULT_TIME_TRAVEL = timedelta(days=30)
_MEMORY = re.compile(r"([1-9][0-9]*)([mg])", re.IGNORECASE)
_LEAST_MEMORY_MIB = 512  # Spark refuses to start with less than 450
_CONNECTION = re.compile(r"TIDEGATE_(KAFKA|SQL)(_[A-Z0-9_]+)?")


@dataclass(frozen=True)
class Settings:
    """All settings, resolved. Secrets stay out of `repr`.

    `connections`: variable -> text, of Kafka clusters and of SQL sinks' databases. Each is read when it is
    needed: one that is wrong stops none that does without it.
    """

    home: Path
    ledger: str = field(repr=False)
    lake: str
    pipelines: Path
    expectations: Path
    spark_master: str
    spark_memory: str | None = None
    time_travel: timedelta = DEFAULT_TIME_TRAVEL
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings; raises SettingsInvalid when one cannot be used."""
        home = Path(environment.get("TIDEGATE_HOME") or ".tidegate").expanduser().absolute()
        pipelines = Path(environment.get("TIDEGATE_PIPELINES") or Path("include/pipelines")).absolute()
        return cls(
            home=home,
            ledger=environment.get("TIDEGATE_LEDGER") or f"sqlite:///{home / 'ledger.db'}",
            lake=environment.get("TIDEGATE_LAKE") or str(home / "lake"),
            pipelines=pipelines,
            expectations=Path(
                environment.get("TIDEGATE_EXPECTATIONS") or pipelines.parent / "expectations"
            ).absolute(),
            spark_master=environment.get("TIDEGATE_SPARK_MASTER") or "local[*]",
            spark_memory=_memory(environment.get("TIDEGATE_SPARK_MEMORY") or None),
            time_travel=_days(environment.get("TIDEGATE_TIME_TRAVEL") or None),
            connections={
                name: text for name, text in environment.items() if _CONNECTION.fullmatch(name) and text
            },
        )

    def has(self, connection: Connection) -> bool:
        """Whether it is set."""
        return connection.variable in self.connections

    def kafka(self, name: str | None = None) -> KafkaConfig:
        """How a Kafka cluster is reached. Raises SettingsInvalid where that is not set, or cannot be used."""
        connection = Connection("kafka", name)
        text = self._text(
            connection, "no Kafka broker is known", "host:9092, or to a JSON object of properties"
        )
        return KafkaConfig.parse(text, connection.variable)

    def sql_url(self, name: str | None = None) -> str:
        """The URL of a SQL sink's database, password included, or SettingsInvalid when there is none."""
        example = "postgresql+psycopg://user:password@host/database"
        return self._text(Connection("sql", name), "no database is known for SQL sinks", example)

    def _text(self, connection: Connection, lacks: str, example: str) -> str:
        if not self.has(connection):
            by_name = f" with `connection: {connection.name}`" if connection.name else ""
            raise SettingsInvalid(
                f"{connection.variable} is not set: {lacks}{by_name}",
                f"Set {connection.variable} to {example} "
                f"(or, under Airflow, the connection `{connection.airflow_id}`).",
            )
        return self.connections[connection.variable]


def _memory(text: str | None) -> str | None:
    if text is None:
        return None
    found = _MEMORY.fullmatch(text)
    if found is None or int(found[1]) * (1024 if found[2] in "gG" else 1) < _LEAST_MEMORY_MIB:
        raise SettingsInvalid(
            f"TIDEGATE_SPARK_MEMORY is {text!r}, which is no size of a Java heap for Spark",
            f"Write mebibytes or gibibytes, such as 1500m or 4g; at least {_LEAST_MEMORY_MIB}m.",
        )
    return text


def _days(text: str | None) -> timedelta:
    if text is None:
        return DEFAULT_TIME_TRAVEL
    try:
        days = timedelta(days=float(text))
    except (ValueError, OverflowError):
        days = timedelta(days=-1)
    if days < timedelta(0):
        raise SettingsInvalid(
            f"TIDEGATE_TIME_TRAVEL is {text!r}, which is no number of days",
            "Write days, such as 30 or 0.5; 0 keeps the state of now.",
        )
    return days
