"""Settings from the environment. A secret never comes from a pipeline file or a command's argument.

`VARIABLES` lists all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from tidegate.errors import SettingsInvalid
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.registry_config import RegistryConfig
from tidegate.model.connection import Connection

DEFAULT_TIME_TRAVEL = timedelta(days=30)
DEFAULT_PAGE_WAIT = timedelta(seconds=0.5)
_MEMORY = re.compile(r"([1-9][0-9]*)([mg])", re.IGNORECASE)
_LEAST_MEMORY_MIB = 512  # Spark refuses to start with less than 450
_CONNECTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CONNECTION = re.compile(r"TIDEGATE_(KAFKA|SQL|REGISTRY|HTTP|ICEBERG|CLICKHOUSE)(_[A-Z0-9_]+)?")


@dataclass(frozen=True)
class Variable:
    """A variable of the environment: its meaning, and its default, in Markdown."""

    name: str
    meaning: str
    default: str = "none"


VARIABLES = (
    Variable(
        "TIDEGATE_HOME",
        "One folder for everything that tidegate writes: an absolute path. Under Airflow a relative one is "
        "refused; elsewhere it is below the folder of the pipelines, whatever folder the shell is in.",
        "`.tidegate` here",
    ),
    Variable("TIDEGATE_LEDGER", "SQLAlchemy URL of the ledger.", "SQLite in `TIDEGATE_HOME`"),
    Variable(
        "TIDEGATE_LAKE",
        "Folder, or URI such as `s3://bucket/lake`, of the files and tables.",
        "`lake` in `TIDEGATE_HOME`",
    ),
    Variable(
        "TIDEGATE_KAFKA",
        "The Kafka cluster of a source and sinks without a `connection`: `host:9092`, or a JSON object of "
        "client properties.",
    ),
    Variable("TIDEGATE_KAFKA_<CONNECTION>", "The same, for those with `connection: <connection>`."),
    Variable(
        "TIDEGATE_SQL",
        "SQLAlchemy URL of the database of SQL sinks without a `connection`, password included.",
    ),
    Variable("TIDEGATE_SQL_<CONNECTION>", "The same, for those with `connection: <connection>`."),
    Variable(
        "TIDEGATE_REGISTRY",
        "URL of the schema registry of formats without a `connection` of their own, or a JSON object of "
        "its client's properties.",
    ),
    Variable("TIDEGATE_REGISTRY_<CONNECTION>", "The same, for those with `connection: <connection>`."),
    Variable(
        "TIDEGATE_HTTP",
        "URL of the endpoint of HTTP sinks without a `connection`, or a JSON object of its properties, "
        "secrets included.",
    ),
    Variable("TIDEGATE_HTTP_<CONNECTION>", "The same, for those with `connection: <connection>`."),
    Variable(
        "TIDEGATE_ICEBERG",
        "Iceberg catalog of sinks without a `connection`: the URL of a REST catalog, or a JSON object of the "
        "catalog's properties, secrets included.",
    ),
    Variable("TIDEGATE_ICEBERG_<CONNECTION>", "The same, for those with `connection: <connection>`."),
    Variable(
        "TIDEGATE_CLICKHOUSE",
        "URL of the server of ClickHouse sinks without a `connection`, or a JSON object of its properties, "
        "secrets included.",
    ),
    Variable("TIDEGATE_CLICKHOUSE_<CONNECTION>", "The same, for those with `connection: <connection>`."),
    Variable(
        "TIDEGATE_TABLES",
        "Format of the tables for other engines: `delta`, or `iceberg` in the catalog of TIDEGATE_ICEBERG; "
        "`iceberg:<connection>` for that of TIDEGATE_ICEBERG_<CONNECTION>.",
        "`delta`",
    ),
    Variable(
        "TIDEGATE_PYTHON_MODULES",
        "Modules, with commas, whose functions `equal: {python: …}`, callbacks of a DAG and of a Kafka login "
        "may name.",
    ),
    Variable("TIDEGATE_PIPELINES", "Folder of pipeline files.", "`include/pipelines`"),
    Variable(
        "TIDEGATE_EXPECTATIONS",
        "Folder of quality suites; checkpoints are in a folder beside it.",
        "`expectations` beside the pipelines",
    ),
    Variable(
        "TIDEGATE_DATA_DOCS",
        "Folder or bucket of quality results and their pages, for workers and web server.",
        "`data_docs` in `TIDEGATE_HOME`",
    ),
    Variable(
        "TIDEGATE_SPARK_MASTER",
        "Spark's master for commands, or `sc://host:15002` of a Spark Connect server. Tasks of Airflow take "
        "its connection.",
        "the server of `tidegate up` in the same `TIDEGATE_HOME`, if it runs; else `local[*]`",
    ),
    Variable(
        "TIDEGATE_SPARK_MEMORY", "Java heap of Spark's driver, such as `4g` or `1500m`.", "Spark's own, `1g`"
    ),
    Variable("TIDEGATE_TIME_TRAVEL", "For how many days the state as of a batch can be read.", "30"),
    Variable(
        "TIDEGATE_PAGE_WAIT",
        "For how many seconds a page of the console waits for Kafka to tell the lag; then it shows all else. "
        "Set more for a cluster that is far away.",
        "0.5",
    ),
)
"""The variables for people who run tidegate, in the order in which they usually need them."""


OWN_SPARK = "local[*]"
"""The master of a Spark that a command starts for itself."""


@dataclass(frozen=True)
class Settings:
    """The settings, with defaults filled in. Secrets are not part of `repr`.

    `tables` is the catalog of the tables for other engines; None: they are Delta tables.
    `connections` is variable -> text, of Kafka clusters, SQL sinks' databases, schema registries,
    endpoints of HTTP sinks, Iceberg catalogs and servers of ClickHouse. A connection is parsed when it is
    used, so a wrong one stops only the pipelines that use it.

    Example: `Settings.from_environment({"TIDEGATE_HOME": "/data"}).lake` is `/data/lake`.
    """

    home: Path
    ledger: str = field(repr=False)
    lake: str
    pipelines: Path
    expectations: Path
    data_docs: str
    spark_master: str | None
    spark_memory: str | None = None
    time_travel: timedelta = DEFAULT_TIME_TRAVEL
    page_wait: timedelta = DEFAULT_PAGE_WAIT
    tables: Connection | None = None
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings. Raises SettingsInvalid if one of them cannot be used."""
        pipelines = Path(environment.get("TIDEGATE_PIPELINES") or Path("include/pipelines")).absolute()
        chosen = environment.get("TIDEGATE_HOME")
        # A relative path is below the pipelines' folder, so that every shell of a project uses one ledger.
        home = pipelines / home_path(chosen) if chosen else Path(".tidegate").absolute()
        return cls(
            home=home,
            ledger=environment.get("TIDEGATE_LEDGER") or f"sqlite:///{home / 'ledger.db'}",
            lake=_place("TIDEGATE_LAKE", environment.get("TIDEGATE_LAKE") or str(home / "lake")),
            pipelines=pipelines,
            expectations=Path(
                environment.get("TIDEGATE_EXPECTATIONS") or pipelines.parent / "expectations"
            ).absolute(),
            data_docs=_place(
                "TIDEGATE_DATA_DOCS", environment.get("TIDEGATE_DATA_DOCS") or str(home / "data_docs")
            ),
            spark_master=environment.get("TIDEGATE_SPARK_MASTER") or None,
            spark_memory=_memory(environment.get("TIDEGATE_SPARK_MEMORY") or None),
            time_travel=_days(environment.get("TIDEGATE_TIME_TRAVEL") or None),
            page_wait=_page_wait(environment.get("TIDEGATE_PAGE_WAIT") or None),
            tables=_tables(environment.get("TIDEGATE_TABLES") or "delta"),
            connections={
                name: text for name, text in environment.items() if _CONNECTION.fullmatch(name) and text
            },
        )

    @property
    def table_connections(self) -> set[Connection]:
        """The catalog of the tables for other engines, if they have one."""
        return set() if self.tables is None else {self.tables}

    def has(self, connection: Connection) -> bool:
        """Return whether the connection is set."""
        return connection.variable in self.connections

    def kafka(self, name: str | None = None) -> KafkaConfig:
        """Return the configuration of a Kafka cluster, by its connection name (None: TIDEGATE_KAFKA).

        Raises SettingsInvalid if it is not set or cannot be used.
        """
        connection = Connection("kafka", name)
        text = self._text(
            connection, "no Kafka broker is known", "host:9092, or to a JSON object of properties"
        )
        return KafkaConfig.parse(text, connection.variable)

    def sql_url(self, name: str | None = None) -> str:
        """Return the URL of a SQL sink's database, password included, by its connection name (None:
        TIDEGATE_SQL).

        Raises SettingsInvalid if it is not set.
        """
        example = "postgresql+psycopg://user:password@host/database"
        return self._text(Connection("sql", name), "no database is known for SQL sinks", example)

    def registry(self, name: str | None = None) -> RegistryConfig:
        """Return the configuration of a schema registry, by its connection name (None: TIDEGATE_REGISTRY).

        Raises SettingsInvalid if it is not set or cannot be used.
        """
        connection = Connection("registry", name)
        example = "https://registry.example.com, or to a JSON object of properties"
        return RegistryConfig.parse(
            self._text(connection, "no schema registry is known", example), connection.variable
        )

    def http(self, name: str | None = None) -> str:
        """Return the URL or the properties of an HTTP sink's endpoint, by its connection name (None:
        TIDEGATE_HTTP).

        Raises SettingsInvalid if it is not set.
        """
        example = "https://hooks.example.com, or to a JSON object of properties"
        return self._text(Connection("http", name), "no endpoint is known for HTTP sinks", example)

    def iceberg(self, name: str | None = None) -> str:
        """Return the URL or the properties of an Iceberg catalog, by its connection name (None:
        TIDEGATE_ICEBERG).

        Raises SettingsInvalid if it is not set.
        """
        example = "https://catalog.example.com, or to a JSON object of properties"
        return self._text(Connection("iceberg", name), "no catalog is known for Iceberg sinks", example)

    def clickhouse(self, name: str | None = None) -> str:
        """Return the URL or the properties of a server of ClickHouse, by its connection name (None:
        TIDEGATE_CLICKHOUSE).

        Raises SettingsInvalid if it is not set.
        """
        example = "https://user:password@host:8443, or to a JSON object of properties"
        return self._text(Connection("clickhouse", name), "no server is known for ClickHouse sinks", example)

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
    match = _MEMORY.fullmatch(text)
    if match is None or int(match[1]) * (1024 if match[2] in "gG" else 1) < _LEAST_MEMORY_MIB:
        raise SettingsInvalid(
            f"TIDEGATE_SPARK_MEMORY is {text!r}, which is no size of a Java heap for Spark",
            f"Write mebibytes or gibibytes, such as 1500m or 4g; at least {_LEAST_MEMORY_MIB}m.",
        )
    return text


def home_path(written: str) -> Path:
    """Return the path of TIDEGATE_HOME, in which `~` is a user's folder. Raises SettingsInvalid."""
    try:
        return Path(written).expanduser()
    except RuntimeError:  # there is no such user
        raise SettingsInvalid(
            f"TIDEGATE_HOME={written} names the folder of a user who does not exist", "Write the path."
        ) from None


def _place(variable: str, place: str) -> str:
    """Return the folder or URI. It is shown in messages and on pages, so it may not contain a password."""
    with suppress(ValueError):  # not a URL, such as a path with brackets
        if urlsplit(place).password is not None:
            raise SettingsInvalid(
                f"{variable} holds a password, and its text is shown in messages",
                "Leave it out: name the store alone, and set its credentials as AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or as those of its cloud.",
            )
    return place


def _tables(text: str) -> Connection | None:
    format_, colon, name = text.partition(":")
    if text == "delta":
        return None
    if format_ == "iceberg" and (_CONNECTION_NAME.fullmatch(name) or not colon):
        return Connection("iceberg", name or None)
    raise SettingsInvalid(
        f"TIDEGATE_TABLES is {text[:60]!r}, which is no format of tables",
        "Write delta, iceberg, or iceberg:NAME for the catalog in TIDEGATE_ICEBERG_NAME.",
    )


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


def _page_wait(text: str | None) -> timedelta:
    if text is None:
        return DEFAULT_PAGE_WAIT
    try:
        wait = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        wait = timedelta(0)
    if not timedelta(0) < wait <= timedelta(minutes=1):
        raise SettingsInvalid(
            f"TIDEGATE_PAGE_WAIT is {text!r}, which is no number of seconds up to 60",
            "Write seconds, such as 0.5 or 3.",
        )
    return wait
