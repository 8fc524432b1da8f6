"""Each batch in a SQL table exactly once, whatever happens to publisher, server and progress row."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, create_engine, event, make_url, text

from tests.postgres import PASSWORD, PostgresServer
from tests.sinks.sql.conftest import KEY_TYPE, new_database
from tests.sinks.sql.sink import VARIABLE, Sink, emission
from tidegate.errors import (
    Fenced,
    OutcomeUnknown,
    ProgressLost,
    ProgressUnreadable,
    SettingsInvalid,
    SinkRefused,
    SinkUnavailable,
    TidegateError,
)
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named
from tidegate.sinks.sql.progress import restart_after

# `make test` runs each test with three kinds of databases, and `make e2e` with all of them.
pytestmark = pytest.mark.sample(3)

AFTER_COMMIT = "sql.commit=lose@2"
FAULTS = (
    "sql.connect=raise",
    "sql.prepare=raise",
    "sql.prepare=lose",
    "sql.read_progress=lose",
    "sql.advance=raise",
    "sql.advance=lose",
    "sql.write=raise",
    "sql.write=lose",
    "sql.write=lose@2",
    "sql.count=lose",
    "sql.commit=raise@2",
    AFTER_COMMIT,
)  # the first commit is that of the tables


ALONE = ["sqlite", "postgresql", "postgresql, staged", "mariadb", "duckdb"]
"""The ways in which one process writes a batch."""


@pytest.fixture(params=[*ALONE, "postgresql, in shards"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database; it gets few rows one by one, and many through a staging table."""
    return new_database(request.param, request, tmp_path)


def test_appended_batches_stand_one_after_the_other(url: str) -> None:
    sink = Sink(url)
    assert sink.publish(1, [emission("a", 1), emission("b", 2), emission("b", None)]) == 3
    assert sink.publish(3, [emission("a", 4)], 1) == 1
    assert sink.values() == [("a", 1), ("b", 2), ("b", None), ("a", 4)]
    assert [(row["batch"], row["ordinal"]) for row in sink.rows()] == [(1, 0), (1, 1), (1, 2), (3, 0)]
    assert sink.progress() == [(sink.shard, 3, 1)]


SQLITE_TRIGGER = (
    "CREATE TRIGGER swallow BEFORE INSERT ON {table} WHEN NEW.key = 'b' BEGIN SELECT RAISE(IGNORE); END"
)
POSTGRESQL_TRIGGER = """
CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.key = 'b' THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER swallow BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION swallow()
"""


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_row_that_a_trigger_swallows_is_refused(url: str, mode: str) -> None:
    if not url.startswith(("sqlite", "postgresql")):
        pytest.skip("a trigger of this database can only raise an error")
    sink = Sink(url, mode=mode)
    sink.publish(1, [emission("a", 1)])
    trigger = SQLITE_TRIGGER if url.startswith("sqlite") else POSTGRESQL_TRIGGER
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(trigger.format(table=sink.table))
    with pytest.raises(SinkRefused, match=r"took \d of \d rows"):
        sink.publish(2, [emission("a", 2), emission("b", 2)], 1)
    assert sink.values() == [("a", 1)]
    with engine.begin() as connection:
        on_table = "" if url.startswith("sqlite") else f" ON {sink.table}"
        connection.exec_driver_sql(f"DROP TRIGGER swallow{on_table}")
    engine.dispose()
    assert sink.publish(2, [emission("a", 2), emission("b", 2)], 1) == 2


def test_stored_batch_is_not_sent_again(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    assert sink.publish(1, [emission("a", 1)]) == 0
    assert sink.publish(1, [emission("a", 1)], last_published=1) == 0
    assert sink.values() == [("a", 1)]


def test_upsert_keeps_the_newest_row_of_a_key(url: str) -> None:
    sink = Sink(url, mode="upsert")
    sink.publish(1, [emission("a", 1), emission("a", 2), emission("a", 3), emission("b", 1)])
    sink.publish(2, [emission("b", 7)], 1)
    assert [(row["key"], row["n"], row["batch"]) for row in sink.rows()] == [("a", 3, 1), ("b", 7, 2)]


def test_upsert_deletes_and_brings_back(url: str) -> None:
    sink = Sink(url, mode="upsert")
    sink.publish(1, [emission("a", 1), emission("a", None), emission("b", 1), emission("c", 1)])
    assert sink.values() == [("b", 1), ("c", 1)]
    sink.publish(2, [emission("b", None), emission("c", None), emission("c", 5)], 1)
    assert sink.values() == [("c", 5)]


def test_insert_ignore_keeps_a_keys_first_row(url: str) -> None:
    sink = Sink(url, mode="insert_ignore")
    sink.publish(1, [emission("a", 1), emission("a", 2), emission("b", 1), emission("b", None)])
    assert (
        sink.publish(2, [emission("b", 7), emission("a", None), emission("c", 5), emission("c", 6)], 1) == 4
    )
    assert [(row["key"], row["n"], row["batch"]) for row in sink.rows()] == [
        ("a", 1, 1),
        ("b", 1, 1),
        ("c", 5, 2),
    ]


def test_insert_ignore_refuses_other_violated_constraints(url: str) -> None:
    sink = Sink(url, mode="insert_ignore")
    key = f"{sink.quoted('key')} {KEY_TYPE.get(make_url(url).get_backend_name(), 'text')}"
    sink.query(f"CREATE TABLE visitor_batches ({key} PRIMARY KEY, n bigint CHECK (n < 5))")
    with pytest.raises(SinkRefused):
        sink.publish(1, [emission("a", 1), emission("b", 9)])
    assert sink.rows("n") == []
    assert sink.publish(1, [emission("a", 1), emission("b", 2)]) == 2


def test_insert_ignore_sends_later_rows_again(url: str) -> None:
    sink = Sink(url, mode="insert_ignore")
    sink.publish(1, [emission("a", 1)])
    sink.publish(2, [emission("a", 2), emission("b", 2)], 1)
    with sink.database() as database:
        restart_after(database, sink._shard, sink.layout().target, 1, "first")
    assert sink.values() == [("a", 1)]
    sink.publish(2, [emission("a", 3), emission("b", 3)], 1)
    assert sink.values() == [("a", 1), ("b", 3)]


def test_upsert_keeps_the_windows_of_a_key_apart(url: str) -> None:
    sink = Sink(url, mode="upsert", windowed=True)
    sink.publish(1, [emission("a", 1, window=0), emission("a", 2, window=10), emission("a", 3, window=0)])
    sink.publish(2, [emission("a", None, window=10)], 1)
    assert [(row["window_start"], row["n"]) for row in sink.rows()] == [(0, 3)]


def test_user_without_temporary_tables_can_write(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sinks.sql.dialects.postgresql.STAGED_ROWS", 1)
    owner, name = create_engine(postgres_url), make_url(postgres_url).database
    with owner.begin() as connection:
        for statement in (
            f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC",
            f"CREATE ROLE writer_{name} LOGIN PASSWORD '{PASSWORD}'",
            f"GRANT USAGE, CREATE ON SCHEMA public TO writer_{name}",
        ):
            connection.exec_driver_sql(statement)
    owner.dispose()
    url = make_url(postgres_url).set(username=f"writer_{name}").render_as_string(hide_password=False)
    sink = Sink(url, mode="upsert")
    sink.publish(1, [emission("a", 1), emission("b", 1)])
    sink.publish(2, [emission("a", 2), emission("b", None)], 1)
    assert sink.values() == [("a", 2)]


def test_databases_without_upsert_replace_the_row(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sinks.sql.write.dialect_named", lambda _: SqlDialect())
    sink = Sink(url, mode="upsert")
    sink.publish(1, [emission("a", 1), emission("a", 2), emission("b", 1)])
    sink.publish(2, [emission("a", 3), emission("b", None)], 1)
    assert sink.values() == [("a", 3)]
    first = Sink(url, table="first", mode="insert_ignore", shard="first")
    first.publish(1, [emission("a", 1), emission("a", 2)])
    first.publish(2, [emission("a", 3), emission("b", 3)], 1)
    assert first.values() == [("a", 1), ("b", 3)]


def test_upsert_keeps_nulls_of_a_value(url: str) -> None:
    sink = Sink(url, mode="upsert")
    sink.publish(1, [emission("a", 1)])
    sink.publish(2, [emission("a", {"n": None})], 1)
    assert sink.values() == [("a", None)]


def test_generations_and_sinks_share_a_table_without_meeting(url: str) -> None:
    first, second = Sink(url), Sink(url, shard="tidegate-visitors-g2", stream="visitors/2")
    first.publish(1, [emission("a", 1)])
    second.publish(1, [emission("a", 1)])
    assert [row["stream"] for row in first.rows("stream")] == ["visitors/1", "visitors/2"]
    assert len(first.progress()) == 2


def test_long_list_of_keys_is_erased_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = dialect_named(make_url(url).get_backend_name())
    monkeypatch.setattr(type(dialect), "most_values", 3)
    sink, keys = Sink(url), [emission(f"k{n}", n) for n in range(8)]
    sink.publish(1, [*keys, emission("other", 1)])
    lengths = []

    def note(*execution: Any) -> None:
        if execution[2].startswith("DELETE"):
            lengths.append(len(execution[3]) - 1)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with sink.database() as database:
            erased = sink.publisher(database).erase(2, "first", sink.batches(keys, 7), 1)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert (erased, lengths) == (8, [3, 3, 1, 1])
    assert sink.values() == [("other", 1)]


@pytest.mark.sample(10)
@pytest.mark.parametrize("url", ALONE, indirect=True)
@pytest.mark.parametrize("mode", ["append", "upsert", "insert_ignore", "history"])
@pytest.mark.parametrize("fault", FAULTS)
def test_killed_publisher_leaves_all_or_nothing(
    url: str, mode: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(url, mode=mode)
    sink.publish(1, [emission("a", 1), emission("b", 1)])
    before = sink.values()
    batch = [emission("a", 2), emission("b", None), emission("c", 1), emission("c", 2)]
    fired = tmp_path / "fired"
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    with pytest.raises((FailpointRaised, ReplyLost)):
        sink.publish(2, batch, 1)
    assert fired.read_text().split() == [fault]
    committed = fault == AFTER_COMMIT
    assert (sink.values() == before) is not committed
    assert sink.publish(2, batch, 1) == (0 if committed else 4)
    expected = [("a", 1), ("b", 1), ("a", 2), ("b", None), ("c", 1), ("c", 2)]
    per_key = {"upsert": [("a", 2), ("c", 2)], "insert_ignore": [("a", 1), ("b", 1), ("c", 1)]}
    assert sink.values() == per_key.get(mode, expected)


class _Paused:
    """Emissions that come when they are told to, in the middle of a publisher's transaction."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.begun.set()
        assert self.go_on.wait(600)
        yield from self._batches


def _in_the_middle_of(sink: Sink, seq: int, emissions: list[Any]) -> tuple[_Paused, Any, list[Any]]:
    """A publisher on a thread, its transaction open."""
    paused, outcome = _Paused(sink.batches(emissions)), []

    def publish() -> None:
        try:
            with sink.database() as database:
                outcome.append(sink.publisher(database).publish(seq, "first", paused, 0))
        except TidegateError as error:
            outcome.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    assert paused.begun.wait(600)
    return paused, thread, outcome


@pytest.mark.sample(6)
@pytest.mark.parametrize("earlier", [0, 1])
def test_one_of_two_publishers_sends_the_batch(url: str, earlier: int) -> None:
    sink = Sink(url)
    if earlier:
        sink.publish(1, [emission("a", 1)])
    paused, zombie, outcome = _in_the_middle_of(sink, earlier + 1, [emission("b", 2)])
    threading.Timer(1.0, paused.go_on.set).start()
    try:
        other: Any = sink.publish(earlier + 1, [emission("b", 2)], earlier)
    except TidegateError as error:
        other = error
    zombie.join()
    # DuckDB does not let the second wait: whoever commits first wins
    assert [*outcome, other].count(1) == 1
    if not url.startswith("duckdb"):
        assert outcome == [1]
        # it finds the batch complete if it looks after the zombie has committed
        assert other == 0 or isinstance(other, Fenced)
    assert sink.values() == [("a", 1)] * earlier + [("b", 2)]
    assert sink.publish(earlier + 1, [emission("b", 2)], earlier) == 0


def test_idle_publisher_is_ended_by_the_server(postgres_url: str) -> None:
    # In a new process the first rows take long: pyarrow imports pandas for them.
    Sink(postgres_url).publish(1, [emission("a", 1)])
    # On a busy machine a second can pass between two statements: only the zombie has a short limit.
    zombie_sink, sink = Sink(postgres_url, idle_s=3), Sink(postgres_url)
    paused, zombie, outcome = _in_the_middle_of(zombie_sink, 2, [emission("a", 2)])
    assert sink.publish(2, [emission("a", 2)], 1) == 1
    paused.go_on.set()
    zombie.join()
    assert [type(error) for error in outcome] == [SinkUnavailable]
    assert sink.values() == [("a", 1), ("a", 2)]


def test_a_publisher_does_not_wait_for_ever(postgres_url: str) -> None:
    sink = Sink(postgres_url, wait_s=0.5)
    sink.publish(1, [emission("a", 1)])
    paused, zombie, outcome = _in_the_middle_of(sink, 2, [emission("a", 2)])
    with pytest.raises(SinkUnavailable, match="lock timeout"):
        sink.publish(2, [emission("a", 2)], 1)
    paused.go_on.set()
    zombie.join()
    assert outcome == [1]


def test_deadlock_is_transient_and_retried(postgres_url: str) -> None:
    sink = Sink(postgres_url, mode="upsert")
    sink.publish(1, [emission("a", 1)])
    paused, publisher, outcome = _in_the_middle_of(sink, 2, [emission("a", 2)])
    engine = create_engine(postgres_url)
    with engine.connect() as other:
        other.execute(text("SET deadlock_timeout = '60s'"))  # so that it is the publisher who is put out
        other.execute(text("UPDATE visitor_batches SET n = 7"))
        waits = threading.Thread(
            target=lambda: other.execute(text("UPDATE tidegate_progress SET rows = rows"))
        )
        waits.start()
        paused.go_on.set()
        publisher.join()
        waits.join()
        other.rollback()
    engine.dispose()
    assert [str(error) for error in outcome if "deadlock detected" in str(error)]
    assert [type(error) for error in outcome] == [SinkUnavailable]
    assert sink.values() == [("a", 1)]
    assert sink.publish(2, [emission("a", 2)], 1) == 1
    assert sink.values() == [("a", 2)]


def test_a_zombie_of_an_earlier_batch_is_fenced(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    sink.publish(2, [emission("a", 2)], 1)
    with pytest.raises(Fenced, match="batch 2 is in already"):
        sink.publish(1, [emission("a", 1)])
    assert sink.values() == [("a", 1), ("a", 2)]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("DELETE FROM tidegate_progress", "no progress row"),
        ("DROP TABLE tidegate_progress", "no progress row"),
        ("UPDATE tidegate_progress SET seq = 1", "says batch 1"),
        ("DROP TABLE visitor_batches", "does not exist"),
    ],
)
def test_lost_progress_names_the_command(url: str, loss: str, says: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    sink.publish(2, [emission("a", 2)], 1)
    sink.query(loss)
    with pytest.raises(ProgressLost, match=f"{says}.*tidegate recover visitors --choose restore-progress"):
        sink.publish(3, [emission("a", 3)], last_published=2)


def test_losses_of_a_database_are_found_without_publishing(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    sink.publish(2, [emission("a", 2)], 1)
    with sink.database() as database:
        row = sink.progress_row(database)
        row.check(2)
        with pytest.raises(ProgressLost, match=r"progress row says batch 2.*--choose restore-progress"):
            row.check(3)
        sink.query("DROP TABLE visitor_batches")
        with pytest.raises(ProgressLost, match="does not exist"):
            row.check(2)


def test_check_creates_no_missing_sqlite_file(tmp_path: Path) -> None:
    file = tmp_path / "gone.db"
    sink = Sink(f"sqlite:///{file}")
    with (
        sink.database() as database,
        pytest.raises(ProgressLost, match=r"its file does not exist.*--choose restore-progress"),
    ):
        sink.progress_row(database).check(2)
    assert not file.exists()


OTHER_FORMS = {
    "newer": (
        "UPDATE tidegate_progress SET format = 99",
        "has format 99; this tidegate reads 1.*a newer one",
    ),
    "much newer": (
        "UPDATE tidegate_progress SET format = 99; ALTER TABLE tidegate_progress DROP COLUMN attempt",
        "has format 99",
    ),
    "older": (
        "ALTER TABLE tidegate_progress DROP COLUMN format",
        "has no format: a tidegate from before .*DROP TABLE.*--choose restore-progress",
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize(("change", "says"), OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_progress_of_unknown_format_is_refused_and_stays(url: str, change: str, says: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    for statement in change.split(";"):
        sink.query(statement)
    with pytest.raises(ProgressUnreadable, match=says):
        sink.publish(2, [emission("a", 2)], 1)
    with sink.database() as database:
        row = sink.progress_row(database)
        calls = (
            row.newest,
            lambda: row.lost(1, 1, None),
            lambda: row.restore(1, 1, None, {1: "first"}.get),
            lambda: row.check(1),
        )
        for call in calls:
            with pytest.raises(ProgressUnreadable, match=says):
                call()
    assert sink.values() == [("a", 1)]
    assert sink.progress() == [(sink.shard, 1, 1)]


def test_old_progress_table_is_refused_without_own_row(url: str) -> None:
    Sink(url).publish(1, [emission("a", 1)])
    sink = Sink(url, shard="g2", stream="visitors/2")
    sink.query("ALTER TABLE tidegate_progress DROP COLUMN format")
    with pytest.raises(ProgressUnreadable, match="no format"):
        sink.publish(1, [emission("a", 1)])


def test_database_that_is_down_is_transient(postgres: PostgresServer, tmp_path: Path) -> None:
    sink = Sink(postgres.new_database())
    sink.publish(1, [emission("a", 1)])
    paused, publisher, outcome = _in_the_middle_of(sink, 2, [emission("a", 2)])
    with postgres.down():
        paused.go_on.set()
        publisher.join()
        assert [type(error) for error in outcome] == [SinkUnavailable]
        with pytest.raises(SinkUnavailable, match="nothing is lost"):
            sink.publish(2, [emission("a", 2)], 1)
    assert sink.publish(2, [emission("a", 2)], 1) == 1
    assert sink.values() == [("a", 1), ("a", 2)]


def test_unwritable_sqlite_file_is_transient(tmp_path: Path) -> None:
    folder = tmp_path / "sink"
    sink = Sink(f"sqlite:///{folder / 'sink.db'}")
    with pytest.raises(SinkUnavailable, match=VARIABLE):
        sink.publish(1, [emission("a", 1)])
    folder.mkdir()
    assert sink.publish(1, [emission("a", 1)]) == 1


def test_commit_without_an_answer_is_outcome_unknown(postgres: PostgresServer) -> None:
    sink = Sink(postgres.new_database())
    sink.publish(1, [emission("a", 1)])

    with sink.database() as database:
        dying = database.transaction()
        dying.__enter__()
        with postgres.down(), pytest.raises(OutcomeUnknown, match="progress row"):
            dying.__exit__(None, None, None)
    assert sink.publish(2, [emission("a", 2)], 1) == 1


def test_added_columns_are_null_in_old_rows(url: str) -> None:
    Sink(url).publish(1, [emission("a", 1)])
    wider = pa.struct([("n", pa.int64()), ("name", pa.string())])
    sink = Sink(url, value=wider)
    sink.publish(2, [emission("a", {"n": 2, "name": "x"})], 1)
    assert [(row["n"], row["name"]) for row in sink.rows()] == [(1, None), (2, "x")]


def of_type(url: str, type_: pa.DataType) -> Sink:
    return Sink(url, value=pa.struct([("n", type_)]))


WIDENED = [
    *((pa.int32(), pa.int64(), "BIGINT"), (pa.int16(), pa.int32(), "INTEGER")),
    *((pa.float32(), pa.float64(), "DOUBLE PRECISION"), (pa.int32(), pa.float64(), "DOUBLE PRECISION")),
    *((pa.decimal128(10, 2), pa.decimal128(14, 4), "NUMERIC(14, 4)"),),
]


@pytest.mark.parametrize(("before", "after", "type_"), WIDENED, ids=str)
def test_narrow_column_is_refused_with_its_statement(
    postgres_url: str, before: pa.DataType, after: pa.DataType, type_: str
) -> None:
    of_type(postgres_url, before).publish(1, [emission("a", {"n": 1})])
    sink = of_type(postgres_url, after)
    with pytest.raises(
        SinkRefused, match=r"column n of the SQL table visitor_batches is .*no room"
    ) as caught:
        sink.publish(2, [emission("a", {"n": 2})], 1)
    statement = caught.value.fix.split("`")[1]
    assert statement.endswith(f"TYPE {type_}")
    sink.query(statement)
    sink.publish(2, [emission("a", {"n": 2})], 1)
    assert [float(row["n"]) for row in sink.rows()] == [1, 2]
    of_type(postgres_url, before).publish(3, [emission("a", {"n": 3})], 2)


def test_sqlite_takes_wider_numbers_except_rounded_decimals(tmp_path: Path) -> None:
    for before, after, value in (
        (pa.int32(), pa.int64(), 2**40),
        (pa.int32(), pa.float64(), 2.5),
        (pa.decimal128(10, 2), pa.decimal128(20, 2), Decimal("12345678901234567.89")),
    ):
        url = f"sqlite:///{tmp_path / f'{after}.db'}"
        of_type(url, before).publish(1, [emission("a", {"n": 1})])
        sink = of_type(url, after)
        if pa.types.is_decimal(after):
            with pytest.raises(SinkRefused, match="no room for every decimal"):
                sink.publish(2, [emission("a", {"n": value})], 1)
        else:
            sink.publish(2, [emission("a", {"n": value})], 1)
            assert [row["n"] for row in sink.rows()] == [1, value]


def test_user_table_gets_the_missing_columns(url: str) -> None:
    sink = Sink(url, mode="upsert")
    key = f"{sink.quoted('key')} {KEY_TYPE.get(make_url(url).get_backend_name(), 'text')}"
    sink.query(f"CREATE TABLE visitor_batches ({key} PRIMARY KEY, n bigint, mine varchar(9) DEFAULT 'x')")
    sink.publish(1, [emission("a", 1)])
    assert [(row["n"], row["mine"], row["batch"]) for row in sink.rows()] == [(1, "x", 1)]


def test_table_without_key_is_refused_with_statements(url: str) -> None:
    sink = Sink(url, mode="upsert", windowed=True)
    key = f"{sink.quoted('key')} {KEY_TYPE.get(make_url(url).get_backend_name(), 'text')}"
    time = "datetime(6)" if url.startswith("mysql") else "timestamp"
    sink.query(f"CREATE TABLE visitor_batches ({key}, n bigint, window_start {time})")
    with pytest.raises(SinkRefused, match="`mode: upsert` needs") as caught:
        sink.publish(1, [emission("a", 1, window=0)])
    for statement in caught.value.fix.partition("run: ")[2].split(";"):
        sink.query(statement)
    sink.publish(1, [emission("a", 1, window=0), emission("a", 2, window=0)])
    assert sink.values() == [("a", 2)]


def test_refused_value_is_permanent_and_stores_nothing(postgres_url: str) -> None:
    sink = Sink(postgres_url)
    sink.publish(1, [emission("a", 1)])
    sink.query("ALTER TABLE visitor_batches ADD CHECK (n < 5)")
    with pytest.raises(SinkRefused, match="check constraint"):
        sink.publish(2, [emission("a", 2), emission("a", 3), emission("secret-row", 7)], 1)
    assert sink.values() == [("a", 1)]
    sink.query("ALTER TABLE visitor_batches DROP CONSTRAINT visitor_batches_n_check")
    assert sink.publish(2, [emission("a", 7)], 1) == 1


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@127.0.0.1:1/db",
        "postgresql+psycopg://u@127.0.0.1:1/db?password=hunter2",
        "postgresql://u:hunter2@127.0.0.1:1/db?no_such_option=1",
        "postgresql://u:hunter2@127.0.0.1:notaport/db",
        "hunter2",
        "nosuchdialect://u:hunter2@h/db",
        "mssql+pyodbc://u:hunter2@h/db",
    ],
)
def test_url_password_is_in_no_error(url: str) -> None:
    with pytest.raises(TidegateError) as caught:
        Sink(url).publish(1, [emission("a", 1)])
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert VARIABLE in str(caught.value)


def test_a_refused_login_does_not_repeat_the_password(postgres: PostgresServer) -> None:
    url = postgres.new_database().replace(PASSWORD, "another-secret")
    with pytest.raises(SinkUnavailable, match="authentication failed") as caught:
        Sink(url).publish(1, [emission("a", 1)])
    assert "another-secret" not in "".join(traceback.format_exception(caught.value))


def test_the_repr_of_a_database_has_no_password() -> None:
    assert "hunter2" not in repr(Database("postgresql://u:hunter2@h/db", VARIABLE))


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="lost after each transaction"):
        Database("sqlite://", VARIABLE)


def test_invalid_url_error_shows_an_example() -> None:
    with pytest.raises(SettingsInvalid, match="postgresql\\+psycopg://"):
        Database("not a url", VARIABLE)


def test_another_attempt_of_a_stored_batch_is_distinguished(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)], attempt="first")
    assert sink.publish(1, [emission("a", 1)], attempt="first") == 0
    with pytest.raises(Fenced, match="attempt first"):
        sink.publish(1, [emission("a", 1)], attempt="of another ledger")
