"""Numbers of JSON and YAML with all digits that are written; a double has only about 16 of them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from tidegate.spec.tree import Fraction


def exact(value: Any) -> Any:
    """Return the value with a Decimal for each number that has a point or an exponent.

    Example: `exact({"price": Fraction("0.10")})` is `{"price": Decimal("0.10")}`.
    """
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    return Decimal(value.text) if isinstance(value, Fraction) else value


def exact_text(value: Any, ensure_ascii: bool = True) -> str:
    """Return the JSON text of a value that may contain decimals, which `json.dumps` refuses.

    >>> exact_text({"price": Decimal("0.10")})
    '{"price": 0.10}'
    """
    if isinstance(value, dict):
        names = (json.dumps(name, ensure_ascii=ensure_ascii) for name in value)
        items = (exact_text(item, ensure_ascii) for item in value.values())
        return "{" + ", ".join(f"{name}: {item}" for name, item in zip(names, items, strict=True)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(exact_text(item, ensure_ascii) for item in value) + "]"
    # A Decimal's text is a JSON number, with the digits as they were written.
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=ensure_ascii)


def read_exactly(text: str) -> Any:
    """Return the value of a JSON text, with a Decimal for each fraction.

    Raises ValueError if it is not JSON.

    Example: `read_exactly("0.10")` is `Decimal("0.10")`.
    """
    return json.loads(text, parse_float=Decimal)
