"""An edit of a pipeline file that state does not survive, as messages show it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Change:
    """An edit that state does not survive: the field, its values before and after as text, and the reason."""

    field: str
    before: str
    after: str
    why: str

    def __str__(self) -> str:
        return f"`{self.field}` was {self.before} and is {self.after} ({self.why})"


def change_of(field: str, before: Any, after: Any, why: str) -> Change:
    """Return the change of a field between two values of the grammar; None is a field that does not exist.

    Example: `change_of("source.format", "json", "csv", "records would be read otherwise")`
    """
    return Change(field, _as_text(before), _as_text(after), why)


def _as_text(value: Any) -> str:
    if value is None:
        return "not there"
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # Fields that are null were not written, and would only hide the difference.
        return {name: part for name, part in asdict(value).items() if part is not None}
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
