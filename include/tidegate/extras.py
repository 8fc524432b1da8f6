"""What the package is not installed with unless it is asked for: its extras, and what each of them brings."""

from __future__ import annotations

from importlib.util import find_spec

from tidegate.errors import SetupFailed

_EXTRAS = {
    "airflow": "airflow",
    "authlib": "formats",
    "cachetools": "formats",
    "certifi": "formats",
    "fastavro": "formats",
    "google": "formats",
    "great_expectations": "quality",
    "grpc_tools": "formats",
    "httpx2": "formats",
    "jsonschema": "formats",
    "obstore": "s3",
    "pandas": "quality",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyspark": "spark",
}
"""Module at the top -> the extra that has it."""


def missing_extra(error: ModuleNotFoundError) -> SetupFailed | None:
    """What whoever lacks an extra is told; None where it is another module that is missing."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    return SetupFailed(
        f"This needs {module}, which is not installed here", f"pip install 'tidegate[{_EXTRAS[module]}]'."
    )


def check_spark_packages() -> str:
    """Which Spark there is. Raises SetupFailed where there is none, or a mixture of two.

    `pyspark-client`, which Airflow's provider brings in, has the same files as `pyspark`, without the JVM's:
    what was installed last has overwritten those of the other.
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
    """Of an installed distribution; None: there is none of that name, or it came another way."""
    from importlib.metadata import PackageNotFoundError, version  # late: most commands need no Spark

    try:
        return version(name)
    except PackageNotFoundError:
        return None
