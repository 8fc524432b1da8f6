"""The page and the pipeline of a comparison, without Kafka and Spark."""

from __future__ import annotations

from tests.shadow.emissions import ALL_READ, EXACT, emission
from tidegate.cli.commands.shadow import report_object, shadow_page
from tidegate.model.pipeline import Pipeline
from tidegate.shadow import ShadowReport
from tidegate.shadow.comparison import ComparedJobs, compared_jobs
from tidegate.shadow.computed import shadowed
from tidegate.yaml.load import parse_tree
from tidegate.yaml.tree import read

MARKUP = "<script>alert(1)</script>"


def report() -> ShadowReport:
    """A report about a key and a value that are markup."""
    jobs = ComparedJobs(1)
    ours = [emission(MARKUP, 1, MARKUP), emission(None, 2), emission(3, 3)]
    jobs.add(compared_jobs(ours, ours[2:], EXACT, ALL_READ))
    return ShadowReport("p", "s", MARKUP, jobs, 3, 1, [MARKUP], {MARKUP: MARKUP})


def test_page_escapes_all_data_and_loads_nothing() -> None:
    made = report()
    text = shadow_page(made, {MARKUP: [{MARKUP: MARKUP}]})
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 8
    assert "default-src 'none'" in text
    assert not any(word in text for word in (' src="', ' href="', "url("))


def test_report_counts_more_than_its_examples() -> None:
    made = report()
    document = report_object(made)
    assert document["counts"] | {"missing": 2, "equal": 1} == document["counts"]
    assert (document["differs"], document["compared"]) == (True, 3)
    (example,) = document["examples"]
    assert example["other"] is None
    assert example["tidegate"] == {"value": {"value": MARKUP}, "timestamp": 1}


PIPELINE = """\
pipeline: orders
source: {topics: [orders], format: json, columns: "amount bigint"}
stages:
  - {name: large, filter: "amount > 10", emit: {on: update}}
  - {name: totals, reduce: {total: sum(amount)}, emit: {on: update}}
sinks: [{kind: table, stage: large}, {kind: kafka, topic: totals}]
quality:
  - {suite: of_large, stage: large}
  - {suite: of_totals}
quarantine: {topic: dead}
"""


def orders() -> Pipeline:
    return parse_tree(read(PIPELINE, "orders.yaml"), PIPELINE)


def test_shadow_has_stages_up_to_one_without_sinks() -> None:
    pipeline, stage = shadowed(orders(), "large")
    assert [before.name for before in pipeline.stages] == [stage.name] == ["large"]
    assert (pipeline.outputs, pipeline.published_stages) == ((), ("large",))
    assert [check.suite for check in pipeline.checks] == ["of_large"]
    whole, last = shadowed(orders(), None)
    assert (last.name, len(whole.stages), whole.outputs) == ("totals", 2, ())
    assert [check.suite for check in whole.checks] == ["of_large", "of_totals"]
