"""Values of any type as bytes, for people to read: what messages, sizes and hashes are made of is in
`json_text`."""

from __future__ import annotations

import json
from typing import Any


def serialize(value: Any) -> bytes:
    """Compact JSON in UTF-8; what JSON has no form for stands as Python's text of it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_text).encode(
        "utf-8", "surrogatepass"
    )


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
