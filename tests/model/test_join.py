"""`join` of a stage: its sides, the columns that it selects of them, and what does not go with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused

LEFT: dict[str, Any] = {"select": {"amount": "price"}, "filter": "ok"}
RIGHT: dict[str, Any] = {"from": "source", "select": {"paid": "price", "place": "place"}}
JOIN: dict[str, Any] = {"left": "s0", "right": "s1", "within": "10m"}


def joined(**fields: Any) -> dict[str, Any]:
    """The stage that joins both sides."""
    return {"join": JOIN, **fields}


def test_join_has_columns_of_both_sides() -> None:
    stage = made(LEFT, RIGHT, joined(select={"a": "left.amount", "city": "right.place.city"})).stages[2]
    assert (stage.emitted, stage.inputs, stage.timed) == (("a", "city"), ("s0", "s1"), True)
    assert {name: stage.types[name] for name in stage.emitted} == {"a": "double", "city": "string"}


def test_side_of_partly_unknown_types_is_selectable() -> None:
    left = {"select": {"amount": "price", "word": "initcap(name)"}}
    ((field, message, fix),) = refused(left, RIGHT, joined(select={"a": "left.word.x", "b": "left.amount"}))
    assert field == "stages.2.select.a"
    assert message == "the type of `left.word`, and so its fields, cannot be told from this file"
    assert "`x: left.word.x`" in fix
    select = {"a": "left.amount", "w": "left.word", "paid": "right.paid"}
    assert made(left, RIGHT, joined(select=select)).stages[2].types["a"] == "double"


def test_join_without_select_has_both_records() -> None:
    pipeline = made(LEFT, RIGHT, joined(), {"select": {"x": "coalesce(right.paid, 0) - left.amount"}})
    assert pipeline.stages[2].types["left"] == "struct<id:bigint,amount:double>"
    assert pipeline.stages[3].types == {"x": "double"}


def test_join_follows_both_sides() -> None:
    pipeline = made(LEFT, RIGHT, joined())
    assert [stage.name for stage in pipeline.path_to(pipeline.stages[2])] == ["s0", "s1", "s2"]
    assert pipeline.key_of(pipeline.stages[2]) == ("id",)
    assert pipeline.published_stages == ("s2",)


def test_within_gives_both_bounds() -> None:
    join = made(LEFT, RIGHT, joined(join={**JOIN, "before": "0s"})).stages[2].join
    assert join is not None
    assert (join.before_ms, join.after_ms, join.clock) == (0, 600_000, "run")


MISTAKES: list[tuple[dict[str, Any], str, str, str]] = [
    (
        joined(select={"a": "left.amont"}),
        *("stages.2.select.a", "`left` has no field `amont`", "Did you mean `amount`?"),
    ),
    (
        joined(select={"a": "coalesce(right.paid, 0)"}),
        *("stages.2.select.a", "'coalesce(right.paid, 0)' is not a column of `left` or `right`"),
        "Select the columns, such as `paid: right.paid`, and compute with them in a stage after it.",
    ),
    (
        joined(join={**JOIN, "right": "s7"}),
        *("stages.2.join.right", "there is no stage `s7` above this one", "Write `s0`, `s1`."),
    ),
    (
        joined(join={**JOIN, "right": "s0"}),
        *("stages.2.join", "both sides are `s0`"),
        "Name two inputs. A second stage with the same fields can be the other side.",
    ),
    (
        joined(join={"left": "s0", "right": "s1"}),
        *("stages.2.join", "it does not say how far apart the records of a pair may be"),
        "Write `within: 10m`, or both `before: 0s` and `after: 10m`.",
    ),
    (
        joined(join={**JOIN, "before": "1s", "after": "2s"}),
        *("stages.2.join", "`within` has no effect beside `before` and `after`"),
        "Leave `within` out, or one of them.",
    ),
    (
        joined(emit={"on": "update"}),
        "stages.2.emit",
        (
            "`emit` does not go with `join`: a pair is emitted at once, and a record without a match when "
            "its time is over"
        ),
        "Leave `emit` out.",
    ),
    (
        joined(**{"from": "s0"}),
        *("stages.2.from", "`from` does not go with `join`: `left` and `right` are its inputs"),
        "Leave `from` out.",
    ),
    (
        joined(reduce={"n": "count(*)"}),
        *("stages.2.reduce", "`reduce` does not go with `join`: each emission is made of a pair of records"),
        "Leave `reduce` out.",
    ),
]


@pytest.mark.parametrize(
    ("stage", "field", "message", "fix"), MISTAKES, ids=[message for *_, message, _ in MISTAKES]
)
def test_mistake_names_its_fix(stage: dict[str, Any], field: str, message: str, fix: str) -> None:
    assert refused(LEFT, RIGHT, stage) == [(field, message, fix)]


def test_sides_need_the_same_key() -> None:
    ((field, message, _),) = refused(LEFT, {**RIGHT, "key": ["name"]}, joined())
    assert (field, message) == (
        "stages.2.join",
        "`s0` has the key `id`, and `s1` `name`: their records cannot match",
    )


def test_sides_need_the_same_input() -> None:
    ((field, message, fix),) = refused(LEFT, RIGHT, {"from": "s0"}, joined(join={**JOIN, "left": "s2"}))
    assert (field, fix) == (
        "stages.3.join",
        "Let both read sources, or the same stage.",
    )
    assert message.startswith("`s2` reads `s0`, and `s1` reads `source`")


def test_emissions_of_a_join_cannot_retract() -> None:
    counts = {"reduce": {"n": "count(*)"}, "retract": True}
    ((field, message, _),) = refused(LEFT, RIGHT, joined(), counts)
    assert field == "stages.3.retract"
    assert message.endswith("each of them is an event of its own")


def test_late_join_beside_a_window_is_refused() -> None:
    join = {"left": "nowhere", "right": "s0", "within": "1m"}
    mistakes = refused(LEFT, {"join": join, "on_late": "emit", "window": {"sliding": "1h"}})
    assert sorted(field for field, _, _ in mistakes) == [
        "stages.1.join.left",
        "stages.1.on_late",
        "stages.1.window",
    ]


def test_side_with_an_unknown_input_is_one_mistake() -> None:
    ((field, _, _),) = refused(LEFT, {**RIGHT, "from": "nowhere"}, joined())
    assert field == "stages.1.from"
