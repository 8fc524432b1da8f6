"""The pages in Airflow's UI: behind its login and its rights on DAGs, on all routes; what they show."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tests.plugins.runs import CREATED, SUFFIX
from tests.plugins.ui import Airflow, add_dag, airflow_server
from tests.postgres import PostgresServer
from tests.seeded import Seeded, unusable
from tests.waits import give_up_soon
from tidegate.app import stream_of
from tidegate.errors import QualityFailed, TopicRecreated
from tidegate.ledger import Ledger, QualityResult, Stream
from tidegate.quality.audit import PagePlace
from tidegate.quality.site import publish_page
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import ExpectationResult, Verdict

pytestmark = pytest.mark.airflow

PAGES = (
    "/",
    "/pipelines/availability",
    "/pipelines/availability?generation=1&before=2",
    "/pipelines/availability/batches/1",
    "/pipelines/availability/runs/run-1",
    "/pipelines/availability/check",
    "/pipelines/availability/emissions?key=s1",
    "/pipelines/availability/generations",
    "/pipelines/availability/graph",
    "/pipelines/availability/keys?key=s1",
    "/pipelines/availability/charts?range=month",
    "/pipelines/availability/actions?record=stock/0/2001",
)
SCRIPT = b"<script>alert('x')</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with airflow_server(tmp_path_factory.mktemp("airflow")) as running:
        yield running


@pytest.fixture
def airflow(server: Airflow, monkeypatch: pytest.MonkeyPatch) -> Airflow:
    for name in ("TIDEGATE_KAFKA", "AIRFLOW_CONN_TIDEGATE_KAFKA", "TIDEGATE_LAKE"):
        monkeypatch.delenv(name, raising=False)
    return server


@pytest.fixture
def seeded(airflow: Airflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    """Return the data that the server shows; it has no pipeline yet."""
    made = Seeded(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def history(seeded: Seeded) -> Seeded:
    """Three batches of one pipeline, the last with records in quarantine."""
    pipeline = seeded.add_sample("availability")
    seeded.day(pipeline, 2)
    counts = {"used": 998, "emitted": 100, "idempotent-update-skip": 898, "state-rows": 4321}
    seeded.batch(pipeline, 3, counts, [unusable(2001, SCRIPT), unusable(2002, b"\xff" * 5000)], passed=False)
    return seeded


def text_of(page: str) -> str:
    """Return the visible text of a page in one line."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.mark.parametrize("path", PAGES)
def test_anonymous_user_is_sent_to_the_login(airflow: Airflow, history: Seeded, path: str) -> None:
    answer = airflow.get(path)
    assert answer.status_code == 303
    assert "/auth/login?next=" in answer.headers["location"]
    assert "tidegate" in answer.headers["location"]


@pytest.mark.parametrize("path", PAGES)
def test_anonymous_program_is_refused(airflow: Airflow, history: Seeded, path: str) -> None:
    answer = airflow.get(path, accept="application/json")
    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


def test_a_forged_token_is_refused(airflow: Airflow, history: Seeded) -> None:
    assert airflow.get("/pipelines/availability", "forged").status_code in (303, 401, 403)


@pytest.mark.parametrize("path", PAGES[1:])
def test_user_without_dag_access_gets_no_page(airflow: Airflow, history: Seeded, path: str) -> None:
    answer = airflow.get(path, airflow.token(role=None))
    assert answer.status_code == 403
    assert "availability" not in text_of(answer.text)


def test_user_without_dag_access_sees_no_pipeline(airflow: Airflow, history: Seeded) -> None:
    answer = airflow.get("/", airflow.token(role=None))
    assert answer.status_code == 200
    assert "availability" not in text_of(answer.text)
    assert "no pipeline here that you may read" in answer.text


def test_user_of_another_team_sees_other_pipelines(airflow: Airflow, history: Seeded) -> None:
    history.day(history.add_sample("quiet_users"), 1)
    add_dag("quiet_users", team="users")
    shop, users = airflow.token(teams=["shop"]), airflow.token(teams=["users"])
    assert "quiet_users" not in airflow.get("/", shop).text
    assert "availability" in airflow.get("/", shop).text
    assert airflow.get("/pipelines/quiet_users", shop).status_code == 403
    assert "quiet_users" in airflow.get("/", users).text
    assert airflow.get("/pipelines/quiet_users", users).status_code == 200


def test_right_to_one_dag_covers_its_generations_only(airflow: Airflow, history: Seeded) -> None:
    history.add_sample("availability", "other", lambda text: text.replace("generation: 1", "generation: 2"))
    token = airflow.token()
    assert airflow.get("/pipelines/availability?generation=1", token).status_code == 200
    assert airflow.get("/pipelines/other?generation=1", token).status_code == 404
    assert airflow.get("/pipelines/other/batches/1?generation=1", token).status_code == 404


def test_records_take_the_right_to_read_logs(
    airflow: Airflow, history: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    pipeline = history.add_sample("availability")
    history.fail(pipeline, 4, "compute", QualityFailed("The record secret-17 is odd", "Correct it."))
    allowed = SimpleAuthManager.is_authorized_dag

    def without_logs(self: Any, **asked: Any) -> bool:
        return asked.get("access_entity") != DagAccessEntity.TASK_LOGS and allowed(self, **asked)

    token = airflow.token()
    assert "secret-17" in airflow.get("/pipelines/availability", token).text
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", without_logs)
    for path in (
        "/pipelines/availability",
        "/pipelines/availability/batches/3",
        "/pipelines/availability/batches/4",
    ):
        answer = airflow.get(path, token)
        assert answer.status_code == 200
        assert "alert(" not in answer.text
        assert "secret-17" not in answer.text
    assert "QualityFailed" in airflow.get("/pipelines/availability", token).text


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_changed(airflow: Airflow, history: Seeded, path: str, method: str) -> None:
    cookie = {"cookie": f"_token={airflow.token(role='admin')}"}
    assert airflow.client.request(method, f"/tidegate{path}", headers=cookie).status_code == 405


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_there_are_no_pages_on_the_interface_itself(airflow: Airflow, path: str) -> None:
    assert airflow.get(path).status_code == 404


def test_the_list_has_a_row_for_each_pipeline(airflow: Airflow, history: Seeded) -> None:
    history.add_sample("screw_fastening")
    shown = text_of(airflow.get("/", airflow.token()).text)
    assert "2 pipelines" in shown
    assert re.search(r"availability ok 3 \S+ \S+ ago - \S+ \S+ 1,000 998 2 0 0 100 898 -", shown), shown
    assert "screw_fastening not started" in shown


def test_pages_and_links_use_the_prefixed_id(airflow: Airflow, history: Seeded) -> None:
    folder = Path(history.environment["TIDEGATE_PIPELINES"])
    (folder / "defaults.yaml").write_text("dag_id_prefix: shop_\n")
    token = airflow.token()
    assert "/pipelines/shop_availability" in airflow.get("/", token).text
    page = airflow.get("/pipelines/shop_availability", token)
    assert page.status_code == 200
    assert "/pipelines/shop_availability/batches/3" in page.text
    assert airflow.get("/pipelines/availability", token).status_code == 404


def test_pipeline_page_has_chart_stages_batches_and_quarantine(airflow: Airflow, history: Seeded) -> None:
    page = airflow.get("/pipelines/availability", airflow.token()).text
    shown = text_of(page)
    assert "state 4,321 rows, 24.9 kB" in shown
    assert page.count('<rect class="emitted"') == 3
    assert "batch 3, 2026-01-01 00:10:30: emitted 100, suppressed 898" in shown
    assert "availability 998 100 898 0 0 0" in shown  # the stage's row
    assert "malformed: it is cut off" in shown
    assert "reason records open malformed " in shown
    assert " open 20" in shown  # a record, with its status and the year of its timestamp


def test_batch_page_has_plan_counts_seconds_and_sinks(airflow: Airflow, history: Seeded) -> None:
    shown = text_of(airflow.get("/pipelines/availability/batches/3", airflow.token()).text)
    assert "stock[0] 2,000 3,000 1,000" in shown
    assert "kafka:availability 100" in shown
    assert "Quality: failed" in shown
    assert "idempotent-update-skip 898" in shown
    assert "publish 0.6" in shown


def test_what_records_hold_is_escaped_and_cut(airflow: Airflow, history: Seeded) -> None:
    for path in ("/pipelines/availability", "/pipelines/availability/batches/3"):
        page = airflow.get(path, airflow.token()).text
        assert "&lt;script&gt;alert(" in page
        assert SCRIPT.decode() not in page
        assert "\\xff" * 20 in page
        assert "\\xff" * 200 not in page


def test_browser_loads_only_what_the_page_has(airflow: Airflow, history: Seeded) -> None:
    answer = airflow.get("/pipelines/availability", airflow.token())
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "style=" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


def test_a_run_leads_to_its_batch(airflow: Airflow, history: Seeded) -> None:
    answer = airflow.get("/pipelines/availability/runs/run-2", airflow.token())
    assert answer.status_code == 303
    assert answer.headers["location"] == "/tidegate/pipelines/availability/batches/2?generation=1"


def test_a_run_without_a_batch_says_why(airflow: Airflow, history: Seeded) -> None:
    from tidegate.ledger import Run

    pipeline = history.add_sample("availability")
    lease = history.lease(pipeline)
    lease.add_run(Run("scheduled__2026-01-01T00:00:00+00:00", None, "nothing new to read"))
    lease.release()
    path = "/pipelines/availability/runs/scheduled__2026-01-01T00:00:00%2B00:00"
    assert "This run has no batch: nothing new to read" in text_of(airflow.get(path, airflow.token()).text)
    unknown = airflow.get("/pipelines/availability/runs/nobody", airflow.token())
    assert "has planned no batch" in text_of(unknown.text)


def test_failed_batch_is_shown_with_its_remedy(airflow: Airflow, history: Seeded) -> None:
    pipeline = history.add_sample("availability")
    history.fail(pipeline, 4, "validate", QualityFailed("Too many nulls", "Correct the data."))
    token = airflow.token()
    assert "availability halted" in text_of(airflow.get("/", token).text)
    assert "availability halted" in text_of(airflow.get("/?only=failing", token).text)
    shown = text_of(airflow.get("/pipelines/availability", token).text)
    assert "QualityFailed: Too many nulls What to do: Correct the data." in shown
    assert "The logs: the runs of the DAG, in Airflow" in shown
    assert "failed in validate" in shown


def test_failing_or_clock_ahead_stream_is_not_ok(airflow: Airflow, history: Seeded) -> None:
    from tidegate.ledger import Run

    token, pipeline = airflow.token(), history.add_sample("availability")
    assert "availability ok" in text_of(airflow.get("/", token).text)
    lease = history.lease(pipeline)
    lease.note_failure(4, "plan", TopicRecreated("The topic is another one", "Restore it."))
    lease.release()
    assert "availability halted" in text_of(airflow.get("/?only=failing", token).text)
    shown = text_of(airflow.get("/pipelines/availability", token).text)
    assert "Why it is halted" in shown
    assert "TopicRecreated: The topic is another one What to do: Restore it." in shown
    lease = history.lease(pipeline)
    lease.add_run(Run("late", None, "nothing to read"), {("stock", 0): 4_000_000_000_000})
    lease.release()
    assert "availability clock ahead" in text_of(airflow.get("/?only=failing", token).text)
    assert "The clock of availability/1 is 2096-10-02" in text_of(
        airflow.get("/pipelines/availability", token).text
    )


def test_doctors_findings_take_the_right_to_read_logs(
    airflow: Airflow, history: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch, 2)
    monkeypatch.setenv("TIDEGATE_KAFKA", "127.0.0.1:1")
    pipeline = history.add_sample("availability")
    history.fail(pipeline, 4, "validate", QualityFailed("Too many nulls", "Correct the data."))
    page = airflow.get("/pipelines/availability/check", airflow.token())
    assert page.status_code == 200
    assert "pipeline availability WRONG halted: BrokerUnavailable" in text_of(page.text)
    assert "batches of availability WRONG batch 4 failed in validate" in text_of(page.text)
    assert airflow.get("/pipelines/availability/check", airflow.token(role=None)).status_code == 403


def test_mistaken_file_is_shown_beside_its_batches(airflow: Airflow, history: Seeded) -> None:
    path = history.home / "pipelines" / "availability.yaml"
    path.write_text(path.read_text().replace("reduce: latest", "reduce: lastest"))
    shown = text_of(airflow.get("/pipelines/availability", airflow.token()).text)
    assert "availability.yaml has mistakes" in shown
    assert "lastest" in shown
    assert "run-3" in shown


def test_generation_without_a_file_has_a_page(airflow: Airflow, history: Seeded) -> None:
    history.add_sample("availability", edit=lambda text: text.replace("generation: 1", "generation: 2"))
    token = airflow.token()
    assert "No batch was planned yet" in text_of(airflow.get("/pipelines/availability", token).text)
    assert "run-3" in text_of(airflow.get("/pipelines/availability?generation=1", token).text)


def test_empty_list_explains_what_a_pipeline_is(airflow: Airflow, seeded: Seeded) -> None:
    shown = text_of(airflow.get("/", airflow.token()).text)
    assert "0 pipelines" in shown
    assert "TIDEGATE_PIPELINES" in shown


@pytest.mark.parametrize(
    "path",
    ["/pipelines/nobody", "/pipelines/availability?generation=7", "/pipelines/availability/batches/99"],
)
def test_missing_page_says_so(airflow: Airflow, history: Seeded, path: str) -> None:
    answer = airflow.get(path, airflow.token())
    assert answer.status_code == 404
    assert "<h1>No page</h1>" in answer.text


def test_broker_down_removes_only_the_lag(
    airflow: Airflow, history: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "reader"}
    kafka = {"bootstrap.servers": "127.0.0.1:1", **login, "sasl.password": "hunter2"}
    monkeypatch.setenv("TIDEGATE_KAFKA", json.dumps(kafka))
    for path in ("/", "/pipelines/availability"):
        answer = airflow.get(path, airflow.token())
        assert answer.status_code == 200
        assert "Not every lag is known now: Kafka at 127.0.0.1:1 " in text_of(answer.text)
        assert "1,000" in text_of(answer.text)
        assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://reader:hunter2@127.0.0.1:1/ledger",
        "postgresql+psycopg://reader@127.0.0.1:1/ledger?password=hunter2",
        "postgresql+psycopg://reader@127.0.0.1:1/ledger?sslkey=/k&sslpassword=hunter2",
    ],
)
def test_ledger_down_is_shown_without_its_password(
    airflow: Airflow, history: Seeded, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("TIDEGATE_LEDGER", url)
    answer = airflow.get("/", airflow.token())
    assert answer.status_code == 503
    assert "LedgerUnavailable" in answer.text
    assert "hunter2" not in answer.text


def test_postgresql_ledger_that_comes_later_is_shown(
    airflow: Airflow, history: Seeded, monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    monkeypatch.setenv("TIDEGATE_LEDGER", url)
    with postgres.down():
        assert airflow.get("/", airflow.token()).status_code == 503
    assert airflow.get("/", airflow.token()).status_code == 200
    Ledger.open(url).acquire(Stream("comes_later", 1), "r").release()
    assert "comes_later" in airflow.get("/", airflow.token()).text


def test_five_hundred_pipelines_are_paged(airflow: Airflow, seeded: Seeded) -> None:
    folder, sample = seeded.home / "pipelines", seeded.add_sample("availability").text
    for number in range(499):
        name = f"shop_{number:03d}"
        (folder / f"{name}.yaml").write_text(sample.replace("pipeline: availability", f"pipeline: {name}"))
    token = airflow.token()
    first, last = airflow.get("/", token).text, airflow.get("/?page=20", token).text
    assert (first.count("not started"), last.count("not started")) == (25, 25)
    assert "1 to 25 of 500" in text_of(first)
    assert ('rel="next"' in first, 'rel="next"' in last) == (True, False)
    text = text_of(airflow.get("/?q=shop_49", token).text)
    assert "1 to 9 of 9" in text


@pytest.mark.long
def test_hundred_thousand_batches_make_an_ordinary_page(airflow: Airflow, seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    seeded.add_history(pipeline, 100_000)
    token = airflow.token()
    newest = airflow.get("/pipelines/availability", token)
    assert len(newest.text) < 100_000
    assert "99,976" in newest.text
    assert "99,975" not in newest.text
    older = airflow.get("/pipelines/availability?generation=1&before=50000", token)
    assert "49,999" in older.text


def test_each_task_links_to_its_batch(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.factory import pipeline_dags
    from tidegate_airflow.operators import BatchLink

    seeded.add_sample("availability")
    seeded.add_sample("screw_fastening", edit=lambda text: text + "\ntasks: one")
    tasks = [task for dag in pipeline_dags().values() for task in dag.tasks]
    assert len(tasks) == 7
    assert {type(task) for task in tasks} == set(BatchLink.operators)
    run = SimpleNamespace(dag_id="availability", run_id="scheduled__2026-01-01T00:00:00+00:00")
    path = "/tidegate/pipelines/availability/runs/scheduled__2026-01-01T00%3A00%3A00%2B00%3A00"
    assert BatchLink().get_link(None, ti_key=run) == f"/plugin/tidegate{path}"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/flow/")
    assert BatchLink().get_link(None, ti_key=run) == f"/flow/plugin/tidegate/flow{path}"


def test_plugin_loads_and_is_in_the_menu(airflow: Airflow) -> None:
    headers = {"authorization": f"Bearer {airflow.token(role='admin')}"}
    assert airflow.client.get("/api/v2/plugins/importErrors", headers=headers).json()["total_entries"] == 0
    plugins = airflow.client.get("/api/v2/plugins", headers=headers).json()["plugins"]
    (plugin,) = [plugin for plugin in plugins if plugin["name"] == "tidegate"]
    assert plugin["external_views"][0]["href"] == "/tidegate/"


FAILED = ExpectationResult(
    1, "expect_column_to_exist", ("n",), Severity.WARNING, False, failing=({"key": "<b>", "n": "1"},)
)
VERDICT = Verdict("availability on the values of availability", (FAILED,))


@pytest.fixture
def page(seeded: Seeded) -> str:
    """Return the page of batch 2, in which a suite has failures; another pipeline has a page beside it."""
    pipeline = seeded.add_sample("availability")
    seeded.day(pipeline, 2)
    root = seeded.app.settings.data_docs
    place = PagePlace(root, "availability", 1, date(2026, 1, 1), 2, 1, 1)
    path = publish_page(place, "availability", VERDICT, "<p>the page</p>")
    publish_page(PagePlace(root, "others", 1, date(2026, 1, 1), 1, 1, 1), "s", VERDICT, "<p>secret</p>")
    result = QualityResult(
        *("attempt", 1, 1, 1, "availability", "digest", "the values of availability"),
        *(FAILED.type, FAILED.columns, "warning", False, "", 9, 1, 1 / 9, FAILED.failing, None, "", path),
    )
    seeded.lease(pipeline).add_quality(2, [result])
    assert seeded.app.ledger.quality(stream_of(pipeline), 2) == [result]
    return path


def test_reader_of_logs_sees_a_page_without_actions(airflow: Airflow, page: str) -> None:
    answer = airflow.get(f"/pipelines/availability/docs/{page}", airflow.token())
    assert (answer.status_code, answer.text) == (200, "<p>the page</p>")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; form")
    style = airflow.get("/pipelines/availability/docs/static/style.css", airflow.token())
    assert style.headers["content-type"].startswith("text/css")


def test_without_a_login_there_is_no_page(airflow: Airflow, page: str) -> None:
    assert airflow.get(f"/pipelines/availability/docs/{page}").status_code == 303
    assert airflow.get(f"/pipelines/availability/docs/{page}", airflow.token(role=None)).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "others/g1/2026-01-01/index.html",
        "availability/g1/..%2f..%2fothers/g1/index.html",
        "availability/g1/%2e%2e/%2e%2e/others/g1/index.html",
        "..%2f..%2fledger.db",
        "static/..%2fothers/g1/index.html",
        "availability/g2/index.html",
    ],
)
def test_no_path_leads_to_other_files(airflow: Airflow, page: str, path: str) -> None:
    answer = airflow.get(f"/pipelines/availability/docs/{path}", airflow.token())
    assert (answer.status_code, "secret" in answer.text) == (404, False)


def test_run_leads_to_the_newest_batch_page(airflow: Airflow, page: str) -> None:
    answer = airflow.get("/pipelines/availability/quality/run-2", airflow.token())
    assert answer.headers["location"].endswith(f"/pipelines/availability/docs/{page}")
    answer = airflow.get("/pipelines/availability/quality/run-1", airflow.token())
    assert "/batches/1?" in answer.headers["location"]


def test_batch_page_shows_results_of_suites(airflow: Airflow, page: str) -> None:
    shown = airflow.get("/pipelines/availability/batches/2", airflow.token()).text
    assert f"/pipelines/availability/docs/{page}" in shown
    assert "expect_column_to_exist" in shown
    assert "such as key=&lt;b&gt;, n=1" in shown


def add_run(run_after: datetime, task: Mapping[str, Any] | None = None) -> None:
    """The run `nightly` of the DAG, in place of the one before, and a task of it that has not started."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import delete, insert

    run = {"dag_id": "availability", "run_id": "nightly"}
    with create_session(scoped=False) as session:
        session.execute(delete(TaskInstance.__table__))
        session.execute(delete(DagRun.__table__))
        made = {"id": 1, "run_type": "manual", "run_after": run_after}
        session.execute(insert(DagRun.__table__).values(**run, **made))
        if task is not None:
            waits = {"task_id": "plan", "map_index": -1, "id": uuid4(), "max_tries": 0, "queue": "large"}
            session.execute(insert(TaskInstance.__table__).values(**run, **waits, **task))


def test_run_with_reused_id_is_not_the_earlier(airflow: Airflow, history: Seeded) -> None:
    from tidegate.ledger import Run

    lease = history.lease(history.add_sample("availability"))
    lease.add_run(Run(f"nightly{SUFFIX}", None, "nothing new to read"))
    lease.release()
    add_run(CREATED)
    page = text_of(airflow.get("/pipelines/availability/runs/nightly", airflow.token()).text)
    assert "This run has no batch: nothing new to read" in page
    add_run(CREATED + timedelta(days=1))
    page = text_of(airflow.get("/pipelines/availability/runs/nightly", airflow.token()).text)
    assert "has planned no batch" in page


@pytest.mark.parametrize("has_batches", [True, False])
def test_task_with_missing_pool_names_a_remedy(airflow: Airflow, seeded: Seeded, has_batches: bool) -> None:
    pipeline = seeded.add_sample("availability")
    if has_batches:
        seeded.day(pipeline, 1)
    add_run(CREATED, {"state": "scheduled", "pool": "no_such_pool"})
    page = text_of(airflow.get("/pipelines/availability", airflow.token()).text)
    assert "The task plan of the run nightly never starts: Airflow has no pool no_such_pool." in page
    add_run(CREATED, {"state": "scheduled", "pool": "default_pool"})
    assert "does not start" not in text_of(airflow.get("/pipelines/availability", airflow.token()).text)


def test_task_without_a_worker_names_its_queue(airflow: Airflow, history: Seeded) -> None:
    now = datetime.now(timezone.utc)
    queued = {"state": "queued", "pool": "default_pool"}
    add_run(CREATED, queued | {"queued_dttm": now - timedelta(hours=1)})
    page = text_of(airflow.get("/pipelines/availability", airflow.token()).text)
    assert "has been queued for 60 minutes: no worker takes the queue large" in page
    add_run(CREATED, queued | {"queued_dttm": now})
    assert "does not start" not in text_of(airflow.get("/pipelines/availability", airflow.token()).text)
