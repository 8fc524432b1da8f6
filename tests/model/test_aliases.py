"""`aliases`: what columns were called before, in a source's records and in a stage's state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import COLLECT, SOURCE, made, refused
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.storage.compatibility import notable_changes


def source(**aliases: list[str]) -> dict[str, Any]:
    return {"source": {"aliases": aliases}}


def test_aliases_name_source_and_emitted_columns() -> None:
    pipeline = made(
        {"select": {"total": "price"}, "aliases": {"total": ["sum", "cost"]}},
        {"reduce": {"n": "count(*)"}, "aliases": {"n": ["number"]}},
        **source(price=["cost"]),
    )
    (events,) = made({**COLLECT, "aliases": {"price": ["cost"]}}).stages
    assert pipeline.sources["source"].aliases == {"price": ("cost",)}
    assert [stage.aliases for stage in (*pipeline.stages, events)] == [
        {"total": ("sum", "cost")},
        {"n": ("number",)},
        {"price": ("cost",)},
    ]


def test_a_plan_keeps_them() -> None:
    pipeline = made({"select": {"total": "price"}, "aliases": {"total": ["sum"]}}, **source(price=["cost"]))
    assert read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1") == pipeline


@pytest.mark.parametrize(
    ("aliases", "says"),
    [
        ({"prise": ["cost"]}, "the column `prise` does not exist"),
        ({"price": ["name"]}, "`name`, an older name of `price`, is a column itself"),
        (
            {"price": ["cost"], "small": ["cost"]},
            "`cost`, an older name of `small`, is an older name of `price`",
        ),
        ({"price": ["cost", "cost"]}, "`cost` is named twice"),
        ({"price": []}, "it is empty"),
        ({"price": ["a b"]}, "not a legal column name"),
    ],
)
def test_a_name_belongs_to_one_column(aliases: dict[str, list[str]], says: str) -> None:
    ((field, message, fix),) = refused(**source(**aliases))
    assert field.startswith("source.aliases")
    assert says in message
    assert fix
    ((field, message, _),) = refused({"aliases": aliases})
    assert field.startswith("stages.0.aliases")
    assert says in message


def test_format_without_aliases_refuses_them() -> None:
    written = {**SOURCE, "format": "string", "key": None, "aliases": {"value": ["text"]}}
    del written["columns"]
    ((field, message, _),) = refused(source=written | {"columns": None})
    assert (field, "does not go with `format: string`" in message) == ("source.aliases", True)


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"format": "csv", "columns": "id bigint, name string"}, "in `columns`"),
        ({"format": "avro", "columns": None}, "in the reader's schema"),
        ({"format": "protobuf", "columns": None}, "by their numbers"),
    ],
)
def test_alias_refusal_says_how_to_rename(options: Any, fix: str) -> None:
    messages = [
        message
        for field, _, message in refused(source={**SOURCE, **options, "aliases": {"name": ["title"]}})
        if field == "source.aliases"
    ]
    assert [fix in message for message in messages] == [True]


def test_edits_of_columns_are_reported() -> None:
    before = made({"select": {"price": "price", "name": "name"}, "emit": {"on": "change"}})
    after = made(
        {
            "select": {"cost": "price", "ok": "ok"},
            "emit": {"on": "change"},
            "aliases": {"cost": ["price"]},
        }
    )
    assert notable_changes(before, after) == [
        "The stage s0 emits ok from now on: in earlier emissions it is null",
        "The stage s0 no longer emits or compares name",
        "The stage s0 emits price as cost from now on",
    ]
