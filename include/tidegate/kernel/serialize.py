"""Values of any type as bytes, for people to read. Messages, sizes and hashes use `json_text` instead."""

from __future__ import annotations

import json
from typing import Any


def serialize(value: Any) -> bytes:
    """Return compact JSON in UTF-8; values that JSON has no form for are written as Python's text of them.

    Example: bytes are written in hexadecimal digits: `{"a":"01"}`.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_text).encode(
        "utf-8", "surrogatepass"
    )


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
