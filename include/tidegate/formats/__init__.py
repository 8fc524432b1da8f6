"""Formats: decode the bytes of records to rows of columns, or to a reason. Pure; one file for each format."""

from __future__ import annotations

from tidegate.formats.csv import Csv, CsvDecoder
from tidegate.formats.debezium import DebeziumDecoder
from tidegate.formats.decoded import Reason
from tidegate.formats.frame import FrameDecoder
from tidegate.formats.json import JsonDecoder
from tidegate.formats.metadata import Header
from tidegate.formats.records import (
    EMISSION,
    INPUT,
    RecordLayout,
    Records,
    SequenceParts,
    unpack_headers,
)
from tidegate.formats.text import BytesDecoder, StringDecoder

__all__ = [
    "EMISSION", "INPUT", "BytesDecoder", "Csv", "CsvDecoder", "DebeziumDecoder",
    "FrameDecoder", "Header", "JsonDecoder", "Reason", "RecordLayout", "Records",
    "SequenceParts", "StringDecoder", "unpack_headers",
]  # fmt: skip
