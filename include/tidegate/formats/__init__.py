"""Formats: the bytes of a record's value → columns, or the reason why not. Pure; one file for each format."""

from __future__ import annotations

from tidegate.formats.decoded import MALFORMED, Decoded, Decoder
from tidegate.formats.json import JsonDecoder
from tidegate.formats.text import BytesDecoder, StringDecoder

__all__ = ["MALFORMED", "BytesDecoder", "Decoded", "Decoder", "JsonDecoder", "StringDecoder"]
