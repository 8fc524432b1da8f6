"""Where things are, from the environment. Nothing secret ever comes from a pipeline file or an argument.

==========================  =======================================================================
TIDEGATE_HOME               one folder for everything that tidegate writes; default `.tidegate` here
TIDEGATE_LEDGER             SQLAlchemy URL; default SQLite in TIDEGATE_HOME
TIDEGATE_LAKE               folder or URI of the files and tables; default `TIDEGATE_HOME/lake`
TIDEGATE_KAFKA              bootstrap servers, or a JSON object of Kafka client properties
TIDEGATE_SQL                SQLAlchemy URL of the SQL sinks' database
TIDEGATE_SQL_<CONNECTION>   the same, for sinks with `connection: <connection>`
TIDEGATE_PYTHON_MODULES     modules whose functions `equal: {python: …}` may name, with commas; default none
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

DEFAULT_TIME_TRAVEL = timedelta(days=30)
_MEMORY = re.compile(r"([1-9][0-9]*)([mg])", re.IGNORECASE)
_LEAST_MEMORY_MIB = 512  # Spark refuses to start with less than 450
_SQL = re.compile(r"TIDEGATE_SQL(_[A-Z0-9_]+)?")


@dataclass(frozen=True)
class Settings:
    """All settings, resolved. Secrets stay out of `repr`."""

    home: Path
    ledger: str = field(repr=False)
    lake: str
    kafka: KafkaConfig | None = field(repr=False)
    pipelines: Path
    expectations: Path
    spark_master: str
    spark_memory: str | None = None
    time_travel: timedelta = DEFAULT_TIME_TRAVEL
    sql: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings; raises SettingsInvalid when one cannot be used."""
        home = Path(environment.get("TIDEGATE_HOME") or ".tidegate").expanduser().absolute()
        pipelines = Path(environment.get("TIDEGATE_PIPELINES") or Path("include/pipelines")).absolute()
        kafka = environment.get("TIDEGATE_KAFKA")
        return cls(
            home=home,
            ledger=environment.get("TIDEGATE_LEDGER") or f"sqlite:///{home / 'ledger.db'}",
            lake=environment.get("TIDEGATE_LAKE") or str(home / "lake"),
            kafka=KafkaConfig.parse(kafka) if kafka else None,
            pipelines=pipelines,
            expectations=Path(
                environment.get("TIDEGATE_EXPECTATIONS") or pipelines.parent / "expectations"
            ).absolute(),
            spark_master=environment.get("TIDEGATE_SPARK_MASTER") or "local[*]",
            spark_memory=_memory(environment.get("TIDEGATE_SPARK_MEMORY") or None),
            time_travel=_days(environment.get("TIDEGATE_TIME_TRAVEL") or None),
            sql={name: url for name, url in environment.items() if _SQL.fullmatch(name) and url},
        )

    def require_kafka(self) -> KafkaConfig:
        """The Kafka settings, or SettingsInvalid when there are none."""
        if self.kafka is None:
            raise SettingsInvalid(
                "No Kafka broker is set",
                "Set TIDEGATE_KAFKA=host:9092 (or, under Airflow, the connection `tidegate_kafka`).",
            )
        return self.kafka

    def sql_url(self, connection: str | None) -> str:
        """The URL of a SQL sink's database, password included, or SettingsInvalid when there is none."""
        variable = sql_variable(connection)
        if variable not in self.sql:
            suffix = f"_{connection}" if connection else ""
            raise SettingsInvalid(
                f"{variable} is not set: no database is known for SQL sinks"
                + (f" with `connection: {connection}`" if connection else ""),
                "Set it to postgresql+psycopg://user:password@host/database "
                f"(or, under Airflow, the connection `tidegate_sql{suffix}`).",
            )
        return self.sql[variable]


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


def sql_variable(connection: str | None) -> str:
    """The variable that holds the URL of a SQL sink's database."""
    return f"TIDEGATE_SQL_{connection.upper()}" if connection else "TIDEGATE_SQL"
