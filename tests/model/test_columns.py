"""The columns of a source, and their types."""

from __future__ import annotations

import pytest

from tidegate.model.columns import BadType, parse_columns, parse_type


def names_and_types(text: str) -> dict[str, str]:
    columns, faults = parse_columns(text)
    assert faults == []
    return {column.name: column.type for column in columns}


def messages(text: str) -> list[str]:
    return [fault.message for fault in parse_columns(text)[1]]


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("BIGINT", "bigint"),
        ("long", "bigint"),
        ("integer", "int"),
        ("byte", "tinyint"),
        ("short", "smallint"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("decimal", "decimal(10,0)"),
        ("dec( 4 )", "decimal(4,0)"),
        ("numeric(38, 18)", "decimal(38,18)"),
        ("array< int >", "array<int>"),
        ("map<string,array<long>>", "map<string,array<bigint>>"),
        ("struct<a int, b: struct<c:string>>", "struct<a:int,b:struct<c:string>>"),
        ("struct<`a-b`: int, select int>", "struct<`a-b`:int,select:int>"),
    ],
)
def test_types_have_one_normal_form(written: str, normal: str) -> None:
    assert names_and_types(f"c {written}") == {"c": normal}


def test_columns_keep_their_order_and_spelling() -> None:
    assert list(names_and_types("storeId string, ID bigint,  `at-time`: int")) == ["storeId", "ID", "at-time"]


def test_words_of_sql_may_be_names() -> None:
    assert names_and_types("select int, from string, array array<int>") == {
        "select": "int",
        "from": "string",
        "array": "array<int>",
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "a column's name is missing at the end"),
        ("a", "the type of `a` is missing"),
        ("a int,", "a column's name is missing at the end"),
        ("a int b int", "`b` where a comma should be"),
        ("a int not null", "`a` has more than a name and a type"),
        ("a int comment 'x'", '"\'" does not belong here'),
        ("a array", "after `array` comes `<`, but the text ends"),
        ("a array<int", "after `array` comes `>`, but the text ends"),
        ("a array<>", "the type is missing"),
        ("a struct<>", "a column's name is missing before `>`"),
        ("a map<string>", "after `map<string` comes `,`, not `>`"),
        ("a map<int,string>", "the keys of a map in JSON are text"),
        ("a array<map<int,string>>", "the keys of a map in JSON are text"),
        ("a decimal(39,1)", "`decimal(39,1)` does not exist"),
        ("a decimal(3,5)", "`decimal(3,5)` does not exist"),
        ("a decimal(x)", "`x` is not a number of digits"),
        ("a foo", "the type of `a`, `foo`, is unknown"),
        ("a interval day to second", "`interval`, is not stored by Delta"),
        ("a void", "`void`, holds nothing"),
        ("a variant", "`variant`, cannot be compared"),
        ("a varchar(10)", "`varchar`, is not kept"),
        ("a time", "`time`, is not switched on"),
        ("a int, A bigint", "the column `A` appears twice"),
        ("a struct<b:int,B:int>", "the field `B` appears twice"),
        ("`a b` int", "'a b' is not a legal column name"),
        ("`a.b` int", "'a.b' is not a legal column name"),
        ("`a", "'`' does not belong here"),
        ("__a int", "'__a' begins like tidegate's own"),
        ("a;b int", "';' does not belong here"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "nested more than 30 deep"),
        ("ä int", "'ä' does not belong here"),
    ],
)
def test_wrong_column_type_is_refused(text: str, part: str) -> None:
    assert any(part in message for message in messages(text)), messages(text)


def test_all_wrong_types_are_reported_together() -> None:
    assert messages("a foo, b void, c varchar(3), d int") == [
        "the type of `a`, `foo`, is unknown",
        "the type of `b`, `void`, holds nothing",
        "the type of `c`, `varchar`, is not kept by Spark outside of tables",
    ]


@pytest.mark.parametrize(("written", "meant"), [("text", "string"), ("strin", "string"), ("int8", "bigint")])
def test_a_type_of_another_house_is_translated(written: str, meant: str) -> None:
    ((fault,)) = parse_columns(f"a {written}")[1]
    assert fault.fix == f"Did you mean `{meant}`?"


def test_a_type_alone_has_nothing_behind_it() -> None:
    with pytest.raises(BadType, match="after the type"):
        parse_type("int int")
