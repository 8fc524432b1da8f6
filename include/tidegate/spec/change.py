"""An edit that state does not survive, as it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Change:
    """An edit that state does not survive: of which field, from what, to what, and why."""

    field: str
    before: str
    after: str
    why: str

    def __str__(self) -> str:
        return f"`{self.field}` was {self.before} and is {self.after} ({self.why})"


def change_of(field: str, before: Any, after: Any, why: str) -> Change:
    """Of a field's values as the grammar has them; None: it was not there, or is not there any more."""
    return Change(field, _as_text(before), _as_text(after), why)


def _as_text(value: Any) -> str:
    if value is None:
        return "not there"
    if isinstance(value, str):
        return value
    plain = value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
    return json.dumps(plain, ensure_ascii=False, default=str)
