"""The compiled form of a pipeline: all of it, exactly, and whatever becomes of the grammar."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.case_files import cases_in
from tests.model.files import COUNT, GOOD, everything, made, several_sources
from tidegate import __version__
from tidegate.errors import PipelineInvalid, PlanUnreadable
from tidegate.expressions import Condition
from tidegate.expressions.rows import compiled
from tidegate.formats.schemas import PinnedSchema, SinkSchema, WriterSchema
from tidegate.model.compiled import FORMAT, compile_pipeline, parts, read_compiled, stage_names
from tidegate.model.kernel_stages import deduplication_stage, kernel_stage, sequence_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import with_suites
from tidegate.model.sources import Sources
from tidegate.yaml.load import load_pipeline, parse_case_pipeline, parse_pipeline

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "compiled" / "format_1.json"
SAMPLES = sorted((ROOT / "include" / "pipelines").glob("*.yaml"))
CASES = [
    *sorted((ROOT / "include" / "pipelines" / "cases").rglob("*.yaml")),
    *sorted((ROOT / "tests" / "conformance").rglob("*.yaml")),
    *(  # further down are schemas
        path
        for path in sorted((ROOT / "tests" / "conformance").glob("*/*.json"))
        if path.parent.name != "dbt"  # histories, and no cases
    ),
]


def again(pipeline: Pipeline) -> Pipeline:
    return read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1 of p/1")


def assert_same(pipeline: Pipeline) -> None:
    """Equal, of the same classes throughout, and the same to the kernel."""
    loaded = again(pipeline)
    assert loaded == pipeline
    assert repr(loaded) == repr(pipeline)
    assert loaded.hash == pipeline.hash
    assert compile_pipeline(loaded) == compile_pipeline(pipeline)
    assert [stage.condition for stage in loaded.stages] == [stage.condition for stage in pipeline.stages]
    assert [kernel_stage(loaded, stage) for stage in loaded.stages] == [
        kernel_stage(pipeline, stage) for stage in pipeline.stages
    ]
    assert deduplication_stage(loaded) == deduplication_stage(pipeline)
    assert sequence_stage(loaded) == sequence_stage(pipeline)


@pytest.mark.parametrize("path", SAMPLES, ids=[path.stem for path in SAMPLES])
def test_a_sample_pipeline_survives_being_compiled(path: Path) -> None:
    assert_same(load_pipeline(path))


def test_the_pipeline_of_every_case_survives_being_compiled() -> None:
    pipelines = [case.pipeline for path in CASES for case in cases_in(path)]
    assert len(pipelines) > 50
    for pipeline in pipelines:
        assert_same(pipeline)


SUITE = json.dumps(
    {
        "name": "availability",
        "expectations": [
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "price", "min_value": 0.5, "max_value": 9, "strict_max": True},
            },
            {
                "type": "expect_column_values_to_be_in_set",
                "kwargs": {"column": "name", "value_set": ["a", None, "b"]},
            },
        ],
    }
)


def with_everything() -> dict[str, Pipeline]:
    """Return pipelines that have every class of the grammar between them."""
    windows: list[dict[str, Any]] = [{"tumbling": "1h"}, {"session": "5m", "grace": "1m"}]
    other_strategies = made(
        {"window": windows[0], "emit": {"on": "window_close", "buffer": {"max_records": 5}}},
        {"emit": {"on": "change", "equal": {"python": "shop.compare:same"}}},
        {
            "window": windows[1],
            "reduce": {"n": "count(*)", "m": "max(price)", "p": {"python": "shop.aggregates:Basket"}},
            "where": "m > 1.50 and n > 1e3",
        },
        {"key": ["n"], "retract": True, "reduce": {"s": "sum(n)"}},
        {"emit": {"on": "interval", "every": "10s"}},
        {"emit": {"on": "quiet", "after": "10m"}},
        source={"topics": {"pattern": "in-.*"}, "deduplicate": "root"},
    )
    registered = made({"emit": {"on": "change"}}, sinks=[{"kind": "kafka", "topic": "t", "format": "avro"}])
    sinks = tuple(sink.with_schemas(SinkSchema(7, "{}"), None) for sink in registered.sinks)
    return {
        "everything": parse_case_pipeline(everything(), "p.yaml"),
        "several sources": parse_case_pipeline(several_sources(), "p.yaml"),
        "registered": registered.model_copy(update={"sinks": sinks}),
        "others": other_strategies,
        "typed": made(
            {"select": {"tags": "tags"}, "emit": {"on": "update"}},
            sinks=[{"kind": "sql", "table": "t", "types": {"tags": "json"}}],
        ),
        "good": parse_pipeline(GOOD, "p.yaml"),
        "schemas": with_schemas(),
        "bounded": parse_pipeline(
            f"{GOOD}quarantine: {{stop: {{share: 1%}}, topic: dead}}\nlate: {{stop: {{share: 50%}}}}\n"
            "freshness: {p95: 5m}\n",
            "p.yaml",
        ),
    }


def with_schemas() -> Pipeline:
    """Return a planned pipeline with the schemas of a file and of a registry."""
    avro = "{topics: [stock], format: avro, schema: schemas/stock.avsc, registry: {strategy: record_name}}"
    text = (
        f"pipeline: p\nsource: {avro}\nstages: [{{name: p, emit: {{on: change}}}}]\nsinks: [{{kind: table}}]"
    )
    pipeline = parse_pipeline(text, str(Path(__file__)))
    writer = WriterSchema("shop.Stock", 1, 17, PinnedSchema('"Stock"', ("{}",)))
    return pipeline.with_sources(Sources({"source": pipeline.sources["source"].with_writers((writer,))}))


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    return monkeypatch


def test_every_class_of_the_grammar_survives_being_compiled(trusted: pytest.MonkeyPatch) -> None:
    on_assets = GOOD.replace('"*/5 * * * *"', "{assets: [orders]}", 1)
    on_data = GOOD.replace('"*/5 * * * *"', "{on_data: {records: 9, or_after: 1m}}", 1)
    refusing = parse_pipeline(GOOD.replace("on_failure: stop", "on_failure: quarantine"), "p.yaml")
    refusing = with_suites(refusing, lambda _: SUITE)
    assert len(refusing.quality[0].row_expectations) == 2
    of_csv = made(source={"format": "csv", "columns": "id bigint, at timestamp", "csv": {"delimiter": ";"}})
    partial = made({"unchanged": {"text": "?"}, "emit": {"on": "update"}})
    of_log = made(source={"sequence": {"columns": ["id"], "keep": "1h"}})
    by_bytes = made({"emit": {"on": "change", "equal": "bytes"}})
    windows = ({"sliding": "1h"}, {"cumulating": "1h", "every": "1m"})
    in_windows = made(*({**COUNT, "window": window} for window in windows))
    to_clickhouse = made(sinks=[{"kind": "clickhouse", "table": "a.b", "connection": "c"}])
    of_files = [refusing, of_csv, of_log, by_bytes, in_windows, to_clickhouse]
    scheduled = [parse_pipeline(text, "p.yaml") for text in (on_assets, on_data)]
    pipelines = [partial, *with_everything().values(), *scheduled, *of_files]
    for pipeline in pipelines:
        assert_same(pipeline)
    written = "".join(map(compile_pipeline, pipelines))
    assert [part for part in parts() if f'{{"is":"{part}"' not in written] == []


amounts = st.floats(min_value=0, allow_infinity=False, allow_nan=False)


@given(
    amounts, st.decimals(-1000, 1000, places=3), st.text(st.characters(exclude_characters="'\\"), max_size=9)
)
def test_numbers_and_texts_survive_being_compiled(amount: float, number: Any, text: str) -> None:
    within = {"on": "change", "equal": {"within": {"price": amount}}}
    assert_same(made({"select": {"price": "price"}, "emit": within, "where": f"price > {abs(number)}"}))
    with suppress(PipelineInvalid):  # such as a text with a character that no expression can have
        assert_same(made({"where": f"name = '{text}'"}))


def test_compiled_plan_loads_without_old_modules_or_grammar(trusted: pytest.MonkeyPatch) -> None:
    pipelines = with_everything()
    forms = {name: compile_pipeline(pipeline) for name, pipeline in pipelines.items()}
    trusted.delenv("TIDEGATE_PYTHON_MODULES")
    trusted.setattr("tidegate.model.sql.parse", lambda *_: pytest.fail("SQL was parsed"))
    trusted.setattr("tidegate.model.condition.parse", lambda *_: pytest.fail("a condition was parsed"))
    for name, form in forms.items():
        loaded = read_compiled(form, pipelines[name].text, "batch 1")
        assert loaded == pipelines[name]
        for stage in loaded.stages:
            kernel_stage(loaded, stage)


def test_stage_names_load_without_the_rest(trusted: pytest.MonkeyPatch) -> None:
    for pipeline in with_everything().values():
        assert stage_names(compile_pipeline(pipeline), "batch 1") == [stage.name for stage in pipeline.stages]


@pytest.mark.process
def test_stage_names_are_read_without_the_model() -> None:
    form = compile_pipeline(parse_pipeline(GOOD, "p.yaml"))
    code = (
        "import sys; from tidegate.model.compiled import stage_names; stage_names(sys.argv[1], 'batch 1'); "
        "print(*sorted({'pydantic', 'pyarrow', 'tidegate.model.pipeline'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code, form], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("text", ["{", '{"format": 1, "pipeline": {}}', '{"format": 99, "tidegate": "9"}'])
def test_names_that_cannot_be_read_are_reported(text: str) -> None:
    with pytest.raises(PlanUnreadable, match="batch 1"):
        stage_names(text, "batch 1")


def golden(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(GOLDEN.read_text())[name]
    return document


def test_the_golden_file_is_of_the_newest_format(trusted: pytest.MonkeyPatch) -> None:
    """If this fails, classes have changed. Until a release, write the file anew:

    `TIDEGATE_PYTHON_MODULES=shop python -m tests.model.test_compiled`. From then on, raise FORMAT.
    """
    for name, pipeline in with_everything().items():
        expected = {"format": FORMAT, "tidegate": __version__, "pipeline": golden(name)}
        assert json.loads(compile_pipeline(pipeline)) == expected, name


def test_the_golden_file_is_read(trusted: pytest.MonkeyPatch) -> None:
    for name, body in json.loads(GOLDEN.read_text()).items():
        form = json.dumps({"format": FORMAT, "tidegate": "0.0.1", "pipeline": body})
        pipeline = with_everything()[name]
        loaded = read_compiled(form, pipeline.text, "batch 1")
        assert loaded == pipeline, name
        for condition in filter(None, (stage.condition for stage in loaded.stages)):
            assert callable(compiled(condition.tree))


def test_compiled_condition_is_not_parsed_again(trusted: pytest.MonkeyPatch) -> None:
    (condition,) = [stage.condition for stage in again(with_everything()["everything"]).stages if stage.where]
    assert condition == Condition("n < window_end", ("<", ("column", "n"), ("column", "window_end")))


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ('{"format": 99, "tidegate": "9.1", "pipeline": {}}', "planned by tidegate 9.1 in format 99"),
        ("", "cannot be read"),
        ("{}", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": 1, "tidegate": "0.1", "pipeline": null}', "cannot be read"),
        ('{"format": 1, "pipeline": {"is": "Written", "of": {"pipeline": "p"}}}', "cannot be read"),
        ('{"format": 1, "pipeline": {"is": "Nobody", "of": {}}}', "cannot be read"),
    ],
)
def test_unreadable_compiled_form_names_its_batch(form: str, says: str) -> None:
    with pytest.raises(PlanUnreadable, match=f"batch 7 of p/1 .*{says}|{says}.*batch 7 of p/1") as caught:
        read_compiled(form, "pipeline: p", "batch 7 of p/1")
    assert caught.value.fix


def test_class_outside_of_the_grammar_is_not_written() -> None:
    pipeline = parse_pipeline(GOOD, "p.yaml")
    with pytest.raises(KeyError):
        compile_pipeline(pipeline.model_copy(update={"lookup": [object()]}))


if __name__ == "__main__":
    forms = {name: compile_pipeline(pipeline) for name, pipeline in with_everything().items()}
    bodies = {name: json.loads(form)["pipeline"] for name, form in forms.items()}
    GOLDEN.write_text(json.dumps(bodies, indent=1) + "\n")
