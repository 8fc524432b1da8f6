"""`headers` of a Kafka sink: columns as headers of messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import HOUR, made, refused

STAGE = {"select": {"trace": "name", "n": "price", "tags": "tags", "raw": "hash(name)"}}


def sinks(headers: Any) -> list[dict[str, Any]]:
    return [{"kind": "kafka", "topic": "out", "headers": headers}]


def test_headers_name_columns_of_value_key_and_window() -> None:
    headers = {"trace-id": "trace", "device": "id", "hour": "window_start"}
    stage = {"reduce": {"trace": "last(name)"}, **HOUR}
    assert made(stage, sinks=sinks(headers)).sinks[0].messages.headers == headers
    assert made(STAGE, sinks=sinks(True)).sinks[0].messages.headers == {}


@pytest.mark.parametrize(
    ("headers", "message", "fix"),
    [
        ({"h": "trac"}, "the column `trac` is not emitted", "Did you mean `trace`?"),
        ({"h": "window_start"}, "the column `window_start` is not emitted", "The columns are `id`, `trace`"),
        ({"h": "tags"}, "`tags` is array<string>, and a header is a single value", "to_json(tags)"),
        ({"h": "raw"}, "the type of `raw` cannot be told from this file", "raw: cast(raw as string)"),
        (
            {"tidegate-source": "trace"},
            "'tidegate-source' is not a header that a pipeline can set",
            "Use another name; `tidegate-…` is for tidegate.",
        ),
        ({"": "trace"}, "'' is not a header", "Use another name"),
        ({}, "a mapping is not true or false, and names no headers", "Write `headers: {trace-id: traceId}`"),
        (
            ["trace"],
            "a list is not true or false, and names no headers",
            "or `headers: true`",
        ),
    ],
)
def test_mistakes_in_headers_have_a_fix(headers: Any, message: str, fix: str) -> None:
    ((field, what, how),) = refused(STAGE, sinks=sinks(headers))
    assert field == "sinks.0.headers"
    assert what.startswith(message)
    assert fix in how
