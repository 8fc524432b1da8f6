"""The columns that a sink's message has beside those that its stage emits, and their size in bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tidegate.kernel.windows import Span

_TIME_BYTES = len('"9999-12-31T23:59:59.999999Z"')


@dataclass(frozen=True)
class KeyColumn:
    """A column of the key. `kind` says how its text in a key of one column becomes JSON."""

    name: str
    kind: Literal["plain", "text", "time"] = "text"

    def json_bytes(self, text: str) -> int:
        """Return the bytes of the column's value as JSON; for a time, the bytes of the longest one.

        Example: `KeyColumn("id", "plain").json_bytes("7")` is 1.
        """
        if self.kind == "plain":
            return len(text)
        # the text of a time in the key can be shorter than the time that a message has
        return max(_text_bytes(text), _TIME_BYTES if self.kind == "time" else 0)


@dataclass(frozen=True)
class Envelope:
    """The columns that `with_key: true` adds: those of the key, and `window_start` and `window_end`."""

    key: tuple[KeyColumn, ...] = ()
    window: bool = False

    def json_bytes(self, key: str, window: Span | None) -> int:
        """Return the bytes that the columns add to the JSON object of a value, which has at least one column
        itself.

        Example: the key column `id` with 7 adds 7 bytes, `"id":7,`.
        """
        size = 0
        if len(self.key) == 1:
            size += _text_bytes(self.key[0].name) + len(":,") + self.key[0].json_bytes(key)
        elif self.key:
            size += len(key.encode()) - len("{}") + len(",")  # the canonical key is their JSON object
        if self.window and window is not None:
            size += len(f'"window_start":{window[0]},"window_end":{window[1]},')
        return size


def _text_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())
