"""`reduce: {name: {python: "module:Class"}}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.kernel import Aggregates
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.planned import python_functions, with_digests


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")


def reduced(**columns: Any) -> Aggregates:
    reduce = made({"reduce": columns}).stages[0].reduce
    assert isinstance(reduce, Aggregates)
    return reduce


def test_class_gets_all_columns_as_one_value() -> None:
    (part,) = reduced(x={"python": "shop.aggs:Basket"}).aggregates
    assert part.text == "python shop.aggs:Basket of * as double"
    assert part.computed.startswith("struct(`id`, `name`, `price`")


def test_class_gets_an_expression() -> None:
    later = made(
        {
            "reduce": {
                "x": {"python": "shop.aggs:Basket", "of": "price * 2", "type": "array<string>"},
                "n": "count(*)",
            }
        },
        {"select": {"y": "x", "m": "n"}},
    ).stages
    assert later[0].values == {"x": "price * 2", "n": "1"}
    assert later[1].types == {"y": "array<string>", "m": "bigint"}


def test_class_stands_beside_expressions() -> None:
    reduce = reduced(x={"python": "shop.aggs:Basket"}, mean="sum(price) / count(*)")
    assert [formula.text for formula in reduce.formulas] == [
        "python shop.aggs:Basket of * as double",
        "sum(price) / count(*)",
    ]


def test_plan_has_the_digest_of_the_class(monkeypatch: pytest.MonkeyPatch, modules: Path) -> None:
    (modules / "baskets.py").write_text("class Basket: pass\n")
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "baskets")
    pipeline = with_digests(made({"reduce": {"x": {"python": "baskets:Basket"}}}))
    (digest,) = python_functions(pipeline).values()
    assert digest
    again = read_compiled(compile_pipeline(pipeline), pipeline.text, "plan")
    assert python_functions(again) == {"baskets:Basket": digest}


@pytest.mark.parametrize(
    ("column", "field", "part"),
    [
        ({"python": "os:system"}, ".python", "the module `os` may not be called"),
        ({"python": "shop"}, ".python", "does not name a class"),
        ({"python": "shop.aggs:B", "of": "pric"}, ".of", "`pric` does not exist"),
        ({"python": "shop.aggs:B", "type": "doubel"}, ".type", "doubel"),
        ({"of": "price"}, ".python", "is missing"),
        ({"python": "shop.aggs:B", "off": "price"}, ".off", "unknown field"),
    ],
)
def test_mistake_is_reported_at_its_field(column: Any, field: str, part: str) -> None:
    ((actual, message, fix),) = refused({"reduce": {"x": column}})
    assert (actual, part in message, bool(fix)) == (f"stages.0.reduce.x{field}", True, True), message
