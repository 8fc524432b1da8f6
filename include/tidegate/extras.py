"""The package's extras: optional dependencies, and the message for a process that lacks one."""

from __future__ import annotations

from importlib.util import find_spec

from tidegate.errors import SetupFailed

_EXTRAS = {
    "airflow": "airflow",
    "authlib": "formats",
    "cachetools": "formats",
    "certifi": "formats",
    "duckdb_engine": "duckdb",
    "fastapi": "ui",
    "fastavro": "formats",
    "google": "formats",
    "great_expectations": "quality",
    "grpc_tools": "formats",
    "httpx2": "http",
    "jinja2": "ui",
    "jsonschema": "formats",
    "obstore": "s3",
    "pandas": "quality",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyiceberg": "iceberg",
    "pymysql": "mysql",
    "pyspark": "spark",
    "starlette": "ui",
    "uvicorn": "ui",
}
"""Top-level module -> the extra that installs it."""


def missing_extra(error: ModuleNotFoundError) -> SetupFailed | None:
    """Return the error for a process that lacks an extra; None if the missing module belongs to no extra.

    Example: if `import psycopg` fails, the fix is `pip install 'tidegate[postgres]'.`
    """
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    return SetupFailed(
        f"This needs {module}, which is not installed here", f"pip install 'tidegate[{_EXTRAS[module]}]'."
    )


def check_spark_packages() -> str:
    """Return the version of Spark as text, such as `Spark 4.0.1`.

    `pyspark-client`, which Airflow's provider installs, has the same files as `pyspark`, without the JVM's:
    the package that was installed last has overwritten files of the other. Raises SetupFailed if Spark is not
    installed, or if the two packages have different versions.
    """
    if find_spec("pyspark") is None:
        raise SetupFailed("pyspark is not installed here", "pip install 'tidegate[spark]'.")
    server, client = _version("pyspark"), _version("pyspark-client")
    if server and client and server != client:
        raise SetupFailed(
            f"pyspark is {server} and pyspark-client {client}, and each has overwritten files of the other",
            f"Install both in one version, such as `pip install pyspark=={client} pyspark-client=={client}`.",
        )
    return f"Spark {server or client or 'of SPARK_HOME'}"


def _version(name: str) -> str | None:
    """Return the version of a distribution; None if it is not installed, or was not installed as a
    package.
    """
    from importlib.metadata import PackageNotFoundError, version  # late: most commands need no Spark

    try:
        return version(name)
    except PackageNotFoundError:
        return None
