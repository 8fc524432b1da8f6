"""The REST catalog of Iceberg's own tests: Iceberg's Java implementation, on a catalog in SQLite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.conftest import REPOSITORY
from tidegate.spark.java import find_java
from tidegate_dev.jars import ensure_jars
from tidegate_dev.processes import Supervised, free_port

LOCK = Path(__file__).with_name("jars.lock")


def jars(set_name: str) -> list[Path]:
    """Return the jars of a set of the lock, downloaded once."""
    home = Path(os.environ.get("TIDEGATE_HOME", REPOSITORY / ".tidegate"))
    return ensure_jars(set_name, home, LOCK)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Run the catalog, and yield its URL. New tables are below `folder` unless they name a place."""
    port, spark = free_port(), find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    # Spark has the rest of what Iceberg needs: Hadoop, Jackson, Avro.
    path = ":".join([*map(str, jars("rest")), str(Path(spark.origin).parent / "jars" / "*")])
    environment = {
        **os.environ,
        "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db",
        "CATALOG_WAREHOUSE": str(folder / "rest"),
        "CATALOG_REST_PORT": str(port),
    }
    command = [str(find_java()), "-Xmx256m", "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
    server = Supervised("REST catalog", command, folder / "rest.log", environment, grace_s=1)
    server.start()
    try:
        url = f"http://127.0.0.1:{port}"
        server.wait_ready(lambda: _answers(url))
        yield url
    finally:
        server.kill()


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, ConnectionError, TimeoutError):
        return False
