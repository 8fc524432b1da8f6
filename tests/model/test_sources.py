"""`sources`: several sources side by side, and the union of them that a stage reads."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.model.files import problems
from tidegate.model.compiled import compile_pipeline, read_compiled, source_connection
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_case_pipeline

ORDERS: dict[str, Any] = {
    "topics": ["orders"],
    "format": "json",
    "columns": "orderId string, amount bigint",
    "key": ["orderId"],
}
PAYMENTS: dict[str, Any] = {**ORDERS, "topics": ["payments"], "columns": "orderId string, method string"}
ALL: dict[str, Any] = {"name": "all", "emit": {"on": "update"}}


def written(*stages: dict[str, Any], **sources: dict[str, Any]) -> dict[str, Any]:
    """A pipeline with these stages, and two sources that are edited so."""
    both = {"orders": ORDERS | sources.get("orders", {}), "payments": PAYMENTS | sources.get("payments", {})}
    return copy.deepcopy({"pipeline": "p", "sources": both, "stages": list(stages or (ALL,))})


def made(*stages: dict[str, Any], **sources: dict[str, Any]) -> Pipeline:
    return parse_case_pipeline(written(*stages, **sources), "p.yaml")


def refused(file: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Field, message and fix of what is wrong with a pipeline."""
    file = {**file, "generation": 1, "sinks": [{"kind": "table", "path": "out/x"}]}
    return [(field, message, fix) for _, field, message, fix in problems(json.dumps(file), "p.json")]


def test_first_stage_reads_the_union_of_all() -> None:
    pipeline = made(ALL, {"name": "paid", "from": "payments", "emit": {"on": "update"}})
    assert [stage.sources for stage in pipeline.stages] == [("orders", "payments"), ("payments",)]
    assert pipeline.stages[0].emitted == ("orderId", "amount", "method")
    assert pipeline.stages[1].emitted == ("orderId", "method")
    assert pipeline.key_of(pipeline.stages[1]) == ("orderId",)


def test_topics_lead_to_their_source() -> None:
    sources = made(payments={"topics": {"pattern": "pay.*"}}).sources
    assert (sources.name_of("orders"), sources.name_of("payments")) == ("orders", "payments")
    assert sources.with_topics(["orders", "pay1"]).topics == ("orders", "pay1")


def test_compiled_pipeline_keeps_its_sources() -> None:
    cluster = {"connection": "shop"}
    pipeline = made(orders=cluster, payments=cluster)
    compiled = compile_pipeline(pipeline)
    assert read_compiled(compiled, pipeline.text, "p").sources["payments"] == pipeline.sources["payments"]
    assert source_connection(compiled, "p") == "shop"


def test_branches_may_read_columns_of_other_types() -> None:
    stages = [
        {"name": "o", "from": "orders", "emit": {"on": "update"}},
        {"name": "p", "from": "payments", "emit": {"on": "update"}},
    ]
    pipeline = made(*stages, payments={"columns": "orderId bigint, amount string"})
    assert [stage.types["amount"] for stage in pipeline.stages] == ["bigint", "string"]


@pytest.mark.parametrize(
    ("file", "field", "message", "fix"),
    [
        pytest.param(
            written(payments={"columns": "orderId string, amount int"}),
            "stages.0.from",
            "the union has one type for each column, but "
            "`amount` is bigint in `orders`, and int in `payments`",
            "Declare it with the same type in both, rename one, or let two stages read them.",
            id="two types",
        ),
        pytest.param(
            written(payments={"columns": "orderId string, Amount bigint"}),
            "stages.0.from",
            "`orders` has the column `amount`, and `payments` has `Amount`",
            "Write it in the same way in both.",
            id="two spellings",
        ),
        pytest.param(
            written(payments={"key": None}),
            "stages.0.from",
            "the union has one key, but it is `orderId` in `orders`, and the record's own key in `payments`",
            "Give both `key` the same columns, or let two stages read them.",
            id="two keys",
        ),
        pytest.param(
            written(payments={"deduplicate": "root"}),
            "stages.0.from",
            "the union recognizes repetitions in one way",
            "Use one `deduplicate` in `orders` and `payments`.",
            id="two ways to deduplicate",
        ),
        pytest.param(
            written(payments={"topics": ["paid", "orders"]}),
            "sources.payments.topics",
            "`orders` belongs to the source `orders` already",
            "Leave it out of one of them; several stages can read one source (`from`).",
            id="a topic of two sources",
        ),
        pytest.param(
            written(payments={"topics": {"pattern": "ord.*"}}),
            "sources.payments.topics",
            "`orders` belongs to the source `orders` already",
            "Leave it out of one of them; several stages can read one source (`from`).",
            id="a topic that a pattern selects",
        ),
        pytest.param(
            written(orders={"topics": {"pattern": "x.*"}}, payments={"topics": {"pattern": "x.*"}}),
            "sources.payments.topics",
            "`x.*` belongs to the source `orders` already",
            "Leave it out of one of them; several stages can read one source (`from`).",
            id="one pattern twice",
        ),
        pytest.param(
            written(payments={"connection": "shop"}),
            "sources.payments.connection",
            "all sources of a pipeline are in one Kafka cluster",
            "Use that of `orders`, or mirror the topics into its cluster.",
            id="two clusters",
        ),
        pytest.param(
            written(payments={"deduplicate": {"columns": ["method"], "keep": "1h"}}),
            "sources.payments.deduplicate",
            "`deduplicate` by columns does not go with several sources",
            "Read its topics in a pipeline of their own, and its output here.",
            id="repeated values",
        ),
        pytest.param(
            written(payments={"sequence": {"columns": ["orderId"]}}),
            "sources.payments.sequence",
            "`sequence` does not go with several sources",
            "Read its topics in a pipeline of their own, and its output here.",
            id="a sequence",
        ),
        pytest.param(
            written({**ALL, "from": "orders"}),
            "stages",
            "no stage reads the source `payments`",
            "Name it in a stage's `from`, or leave it out.",
            id="a source without a reader",
        ),
        pytest.param(
            written({**ALL, "from": "source"}),
            "stages.0.from",
            "the sources of this pipeline have names",
            "Write `orders`, `payments`, or a list of them.",
            id="the source, which has a name",
        ),
        pytest.param(
            written(ALL, {"name": "b", "from": ["all", "orders"], "emit": {"on": "update"}}),
            "stages.1.from",
            "`all` is a stage, and a union is of sources",
            "Name one stage, or several sources.",
            id="a union with a stage",
        ),
        pytest.param(
            written(
                ALL,
                {"name": "b", "key": ["method"], "from": ["orders", "payments"], "emit": {"on": "update"}},
            ),
            "stages.1.key",
            "`orders` has no column `method`",
            "Use columns that all of them have: records without a key cannot be counted to one.",
            id="a key that one source lacks",
        ),
        pytest.param(
            written({**ALL, "name": "orders"}),
            "stages.0.name",
            "`orders` is no name for a stage: in `from` it means the source",
            "Use another name, such as `orders_stage`.",
            id="a stage with the name of a source",
        ),
        pytest.param(
            {**written(), "source": ORDERS},
            "source",
            "there is `source` beside `sources`",
            "Move it into `sources`, under a name.",
            id="both",
        ),
    ],
)
def test_impossible_sources_are_refused(file: dict[str, Any], field: str, message: str, fix: str) -> None:
    assert (field, message, fix) in refused(file)
