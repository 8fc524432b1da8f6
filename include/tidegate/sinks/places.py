"""Keep the tables of sinks out of the folders of pipelines."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tidegate.errors import SinkRefused
from tidegate.sinks.port import OpenSink

S3_SCHEMES = ("s3", "s3a", "s3n")
"""The schemes of one place, which programs write in several ways."""


def require_apart(sink: OpenSink[Any], table: str) -> None:
    """Check that a table's folder and the folder of any pipeline do not overlap. Raises SinkRefused."""
    lake, ledger, place = sink.context.lake, sink.context.ledger, _place(table)
    for pipeline in sorted({lake.pipeline, *(stream.pipeline for stream in ledger.streams())}):
        folder = _place(f"{lake.root.rstrip('/')}/{pipeline}")
        if folder.is_relative_to(place) or place.is_relative_to(folder):
            raise SinkRefused(
                f"The table {place} of the sink {sink.name} and the folder {folder} of the pipeline "
                f"{pipeline} overlap: a vacuum of the table would remove the pipeline's state",
                "Give the sink another table, outside of that folder and not above it.",
            )


def _place(path: str) -> PurePath:
    """Return the path of a folder without links; for an object store, its URI.

    >>> _place("s3a://lake/shop/").is_relative_to(_place("s3://lake"))
    True
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        return Path(path).resolve()
    if scheme == "file":
        return Path(url2pathname(urlsplit(path).path)).resolve()
    return PurePath(f"s3://{rest}" if scheme in S3_SCHEMES else path)
