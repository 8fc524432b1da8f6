"""What an edit has not changed is reused, what it has changed is computed again, and the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete, update

from tests.generations.two_generations import Beside
from tests.world import NOW_MS, World, key_of
from tidegate.batch import Trigger, run_batch
from tidegate.cli import cli
from tidegate.errors import Halted, StateGivenUp
from tidegate.generations import begin_from, plan_recomputation, promote, repeat
from tidegate.generations.recompute import StageWork, stage_work
from tidegate.inspect import read_emissions
from tidegate.ledger import Stream, schema
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import load_pipeline, parse_case_pipeline

COUNTED = """\
  - name: counted
    from: availability
    key: [storeId]
    reduce: {n: "count(*)"}
    emit: {on: update}
"""
ADDED = """\
  - name: in_stock
    from: availability
    key: [isAvailable]
    reduce: {products: "count(*)"}
    emit: {on: update}
"""
TWO = key_of(product=2)


def command(world: World, *arguments: str) -> Result:
    called = ["generation", "new", "availability", *arguments]
    return CliRunner().invoke(cli, called, env=world.environment)


def write(world: World, stages: str, *sinks: str) -> None:
    kafka = f"  - {{kind: kafka, topic: {world.sink}, with_key: true}}"
    own = kafka.replace("with_key", "stage: availability, with_key")
    counted = "  - {kind: table, path: counted, stage: counted}"
    world.write_pipeline(**{"sinks:\n": f"{stages}sinks:\n", kafka: "\n".join([own, counted, *sinks])})


def emitted(world: World, stream: Stream, stage: str) -> list[Any]:
    rows = read_emissions(world.app, stream, stage=stage).to_pylist()
    return [(row["seq"], row["key"], row["value"]) for row in rows]


def tree(*stages: dict[str, Any], published: tuple[str, ...] = ()) -> Pipeline:
    """Return a pipeline of stages that have an input and little else."""
    written = [
        {name: value for name, value in {"emit": {"on": "update"}, **stage}.items() if value is not None}
        for stage in stages
    ]
    sinks = [{"kind": "table", "path": name, "stage": name} for name in published]
    source = {"topics": ["in"], "format": "json", "columns": "id bigint", "key": ["id"]}
    return parse_case_pipeline({"pipeline": "p", "source": source, "stages": written, "sinks": sinks}, "case")


A, B, C = ({"name": "a"}, {"name": "b", "from": "a"}, {"name": "c", "from": "b"})


@pytest.mark.parametrize(
    ("changed", "unstored", "computed"),
    [
        ({}, {}, {}),
        ({"c": "new"}, {}, {"c": "b"}),
        ({"c": "new"}, {"b": "no sink"}, {"b": "a", "c": "b"}),
        ({"c": "new"}, {"a": "no sink"}, {"c": "b"}),
        ({"c": "new"}, {"a": "no sink", "b": "no sink"}, {"a": "source", "b": "a", "c": "b"}),
        ({}, {"c": "refused"}, {"c": "b"}),
        ({"a": "changed", "b": "it reads a", "c": "it reads b"}, {}, {"a": "source", "b": "a", "c": "b"}),
    ],
)
def test_stages_behind_stored_ones_are_computed(
    changed: dict[str, str], unstored: dict[str, str], computed: dict[str, str]
) -> None:
    work = stage_work(tree(A, B, C), changed, unstored)
    assert {part.stage: part.input for part in work if not part.is_reused} == computed


def test_source_that_is_read_again_computes_all_branches() -> None:
    branches = tree(A, {"name": "b", "from": "source"})
    work = stage_work(branches, {"b": "`reduce` is changed"}, {})
    assert work == (
        StageWork("a", False, "source", "the source is read again, for b"),
        StageWork("b", False, "source", "`reduce` is changed"),
    )


OTHER = {"name": "other", "from": "source"}
JOINED = {"name": "joined", "join": {"left": "a", "right": "other", "within": "1m"}, "emit": None}


@pytest.mark.parametrize(
    ("changed", "unstored", "computed"),
    [
        ({"joined": "new"}, {}, {"joined": "a and other"}),
        ({"d": "new"}, {"joined": "no sink"}, {"joined": "a and other", "d": "joined"}),
        ({"d": "new"}, {"a": "no sink"}, {"d": "joined"}),
        (
            {"joined": "new"},
            {"other": "no sink"},
            {"a": "source", "other": "source", "joined": "a and other", "d": "joined"},
        ),
    ],
)
def test_join_is_computed_from_both_sides(
    changed: dict[str, str], unstored: dict[str, str], computed: dict[str, str]
) -> None:
    pipeline = tree(A, OTHER, JOINED, {"name": "d", "from": "joined"}, published=("d",))
    work = stage_work(pipeline, changed, unstored)
    assert {part.stage: part.input for part in work if not part.is_reused} == computed


@pytest.mark.spark
@pytest.mark.broker
def test_new_stage_and_sink_start_from_outboxes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write(world, COUNTED)
    for number, quantities in enumerate(([(1, 5), (2, 0)], [(1, 0), (1, 7)], [(2, 3)]), 1):
        for product, quantity in quantities:
            world.stock(quantity, product=product)
        world.run(clock_ms=NOW_MS + number * 60_000)
    before = world.published()
    # retention takes all records: only outboxes have what happened
    world.delete_records({(world.source, 0): 5})
    write(world, COUNTED + ADDED, "  - {kind: table, path: all, stage: availability}")
    shown = json.loads(command(world, "--from-batch", "3", "--json").output)
    assert [(row["of"], row["is"]) for row in shown] == [
        ("stage availability", "reused"),
        ("stage counted", "reused"),
        ("stage in_stock", "computed"),
        (f"sink kafka:{world.sink}", "reused"),
        ("sink table:counted", "reused"),
    ]
    assert not list((world.folder / "pipelines").glob("*_g2.yaml")), "without --yes nothing is done"

    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", "ledger.commit=raise@2")
        assert command(world, "--from-batch", "3", "--yes").exit_code != 0
    new = Stream("availability", 2)
    assert world.app.ledger.head(new).seq == 1, "it was interrupted"
    done = command(world, "--from-batch", "3", "--generation", "2", "--yes")
    assert (done.exit_code, world.app.ledger.head(new).seq) == (0, 3), done.output
    for stage in ("availability", "counted"):
        assert emitted(world, new, stage) == emitted(world, world.stream, stage)
    assert emitted(world, new, "in_stock") == [
        (1, "false", {"products": 1}),
        (1, "true", {"products": 1}),
        (2, "false", {"products": 2}),
        (2, "true", {"products": 2}),
        (3, "true", {"products": 3}),
    ]

    promote(world.app, new, "promote")
    assert world.published() == before, "the sink has it already"
    world.stock(9, product=2)
    world.stock(0, product=2)
    path = world.folder / "pipelines" / "availability_g2.yaml"
    run_batch(world.app, load_pipeline(path), Trigger("later", NOW_MS + 300_000), world.open_session)
    assert world.published() == {**before, TWO: [*before[TWO], False]}
    assert emitted(world, new, "in_stock")[-1] == (4, "false", {"products": 3})


@pytest.fixture
def beside(generation_ahead: Beside, tmp_path: Path) -> Beside:
    """A pipeline of two stages, `first` and `second`, with three batches."""
    return generation_ahead.copied(tmp_path / "home")


def recomputation(beside: Beside, before: str, after: str, last: int = 3) -> Any:
    """Return what is recomputed for an edit of the file."""
    beside.old.file.write_text(beside.old.file.read_text().replace(before, after))
    return plan_recomputation(beside.old.app, beside.old.pipeline, beside.old.stream, last)


SECOND = "{name: second, select: {m: n}"


def test_changed_stage_is_computed_from_outboxes(beside: Beside) -> None:
    plan = recomputation(beside, SECOND, "{name: second, select: {m: n + 1}")
    assert plan.stages == (
        StageWork("first", True),
        StageWork("second", False, "first", "`select` is changed"),
    )
    assert plan.inherited == ("table:firsts",)
    assert [run.seq for run in plan.runs] == [1, 2, 3]


def test_renamed_stage_is_a_new_one(beside: Beside) -> None:
    plan = recomputation(beside, SECOND, "{name: third, select: {m: n}")
    assert [(work.stage, work.why) for work in plan.stages] == [("first", ""), ("third", "it is new")]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("key: [customerId]", 'key: [customerId]\n  filter: "n > 0"', "`source.filter` is changed"),
        ("{name: first, select: {n: n}", "{name: first, select: {n: n + 1}", "`select` is changed"),
    ],
)
def test_edit_near_the_source_reads_it_again(beside: Beside, before: str, after: str, why: str) -> None:
    plan = recomputation(beside, before, after)
    assert (plan.stages[0].input, plan.stages[0].why, plan.reused) == ("source", why, None)


def test_fields_that_only_choose_records_change_nothing(beside: Beside) -> None:
    plan = recomputation(beside, "format: json", "format: json\n  max_records: 5\n  start: latest")
    assert [work.is_reused for work in plan.stages] == [True, True]


def test_quarantine_of_a_changed_stage_is_refused(beside: Beside) -> None:
    beside.old.commit(4, {"first": [("a", 4)], "second": []})
    lease, plan = beside.old.lease, beside.old.app.ledger.attempt(beside.old.stream, 4)
    assert plan is not None
    with beside.old.app.ledger._engine.begin() as connection:
        counts = {**plan.counts, "second": {"quarantined": 1}}
        connection.execute(update(schema.attempts).where(schema.attempts.c.seq == 4).values(counts=counts))
    lease.release()
    with pytest.raises(Halted, match="Batch 4 of visitors/1 has records of the stage second in quarantine"):
        recomputation(beside, SECOND, "{name: second, select: {m: n + 1}", last=4)


def test_batches_that_left_the_ledger_are_refused(beside: Beside) -> None:
    with beside.old.app.ledger._engine.begin() as connection:
        connection.execute(delete(schema.plans).where(schema.plans.c.seq == 1))
    with pytest.raises(StateGivenUp, match="Batch 1 of visitors/1 is so old that the ledger has no plan"):
        recomputation(beside, SECOND, "{name: second, select: {m: n + 1}")


def test_generation_that_began_with_a_state_is_refused(beside: Beside) -> None:
    begin_from(beside.old.app, beside.new.pipeline, beside.old.stream, 3, "new")
    with pytest.raises(Halted, match="visitors/2 did not begin with the first records"):
        plan_recomputation(beside.old.app, beside.new.pipeline, beside.new.stream, 1)


def test_edited_file_is_refused_by_later_calls(beside: Beside) -> None:
    plan = recomputation(beside, SECOND, "{name: second, select: {m: n + 1}")
    beside.decide(beside.new, 1, [("a", 10)])  # planned with the file as it was
    with pytest.raises(Halted, match="A file was edited since visitors/2 began"):
        repeat(beside.old.app, beside.new.pipeline, plan, lambda _: pytest.fail("no Spark is needed"))
