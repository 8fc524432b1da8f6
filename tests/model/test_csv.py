"""`format: csv`: its options, and what a field cannot contain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.formats import Csv
from tidegate.spark.steps import record_layout

CSV: dict[str, Any] = {"format": "csv", "columns": "id bigint, name string", "key": ["id"]}


def dialect(**source: Any) -> Csv:
    return record_layout(made(source={**CSV, **source}).sources["source"]).csv


def mistakes(**source: Any) -> list[tuple[str, str]]:
    return [(field, message) for field, message, _ in refused(source={**CSV, **source})]


def test_csv_default_is_rfc_4180_with_empty_nulls() -> None:
    assert dialect() == Csv(",", '"', None, "")


def test_options_reach_the_decoder() -> None:
    options = {"delimiter": "\t", "quote": None, "escape": "\\", "null_text": "\\N"}
    assert dialect(csv=options) == Csv("\t", None, "\\", "\\N")
    assert dialect(csv={"null_text": None}) == Csv(null_text=None)


@pytest.mark.parametrize("character", ["", ";;", "\n", 5])
def test_a_delimiter_is_one_character(character: Any) -> None:
    ((field, message),) = mistakes(csv={"delimiter": character})
    assert field == "source.csv.delimiter"
    assert "is not one character" in message


@pytest.mark.parametrize("options", [{"quote": ","}, {"escape": ","}, {"escape": '"'}])
def test_characters_that_mean_something_differ(options: dict[str, str]) -> None:
    ((field, message),) = mistakes(csv=options)
    assert field == f"source.csv.{next(iter(options))}"
    assert "already" in message


def test_a_column_of_csv_is_a_single_value() -> None:
    assert mistakes(columns="id bigint, tags array<string>") == [
        ("source.columns", "`tags` is array<string>, and a field of CSV is a single value")
    ]


def test_other_formats_have_no_options_of_csv() -> None:
    assert mistakes(format="json", csv={"delimiter": ";"}) == [
        ("source.csv", "`format: json` has no options of CSV")
    ]
