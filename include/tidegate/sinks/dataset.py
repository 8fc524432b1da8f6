"""Names of topics, tables and folders by OpenLineage's rules: a namespace, and a name in it.

Neither contains secrets.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import make_url

_PORTS = {"kafka": 9092, "postgresql": 5432}
_SCHEMES = {"postgresql": "postgres"}


class Dataset(NamedTuple):
    """A namespace such as `kafka://broker:9092`, and a name such as `stock`."""

    namespace: str
    name: str


def topic_dataset(servers: str, topic: str) -> Dataset:
    """Return the dataset of a topic; the first bootstrap server names the cluster.

    >>> topic_dataset("kafka-1,kafka-2:9093", "stock")
    Dataset(namespace='kafka://kafka-1:9092', name='stock')
    """
    # OpenLineage names a cluster by one of its bootstrap servers.
    server = servers.split(",")[0].strip()
    host, _, port = server.partition(":")
    return Dataset(f"kafka://{host}:{port or _PORTS['kafka']}", topic)


def table_dataset(url: str, table: str) -> Dataset:
    """Return the dataset of a table of the database at a SQLAlchemy URL.

    >>> table_dataset("postgresql+psycopg://me:secret@db/shop", "reports.stock")
    Dataset(namespace='postgres://db:5432', name='shop.reports.stock')
    """
    # Only parts of the URL go into the name: user and password stay out.
    database = make_url(url)
    kind = database.get_backend_name()
    # SQLite has a file in place of a server.
    if database.host is None:
        return Dataset(f"{kind}://{database.database or ''}", table)
    schema = () if "." in table or kind != "postgresql" else ("public",)
    port = database.port or _PORTS.get(kind)
    server = f"{database.host}:{port}" if port else database.host
    return Dataset(
        f"{_SCHEMES.get(kind, kind)}://{server}", ".".join([database.database or "", *schema, table])
    )


def folder_dataset(uri: str) -> Dataset:
    """Return the dataset of a folder in a file system or an object store.

    >>> folder_dataset("s3://lake/shop/stock")
    Dataset(namespace='s3://lake', name='shop/stock')
    """
    place = urlsplit(uri)
    if place.scheme in ("", "file"):
        return Dataset("file", place.path)
    return Dataset(f"{place.scheme}://{place.netloc}", place.path.lstrip("/"))
