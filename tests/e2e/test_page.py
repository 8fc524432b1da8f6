"""The pages in a real Airflow and browser; TIDEGATE_SCREENSHOTS=docs/screenshots keeps their pictures."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Producer
from kafka.admin import NewTopic
from sqlalchemy import and_, update

from kafka import KafkaAdminClient
from tests.conftest import REPOSITORY
from tests.e2e import failed_batch
from tests.e2e.browser import Browser, browser
from tests.seeded import Seeded, unusable
from tidegate.errors import QualityFailed
from tidegate.ledger import schema
from tidegate_airflow.runs import ledger_run_id
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.airflow_client import RunEnd
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.processes import free_port
from tidegate_dev.stack import environment

pytestmark = [pytest.mark.airflow, pytest.mark.broker]

BATCHES = 90
OFFSETS = 100
WAITING = 120
"""Records that no batch has read yet."""
LAST_RUN = f"run-{BATCHES}"
FRAME = "iframe[title='Tidegate']"


@dataclass
class Site:
    """Airflow, and what its users log in with."""

    airflow: AirflowStack
    password: str

    def token(self, user: str) -> str:
        passwords = json.loads((self.airflow.log.parent.parent / PASSWORDS).read_text())
        body = {"username": user, "password": passwords[user]}
        return str(self._request("POST", "/auth/token", json=body).json()["access_token"])

    def get(self, path: str, token: str | None = None) -> requests.Response:
        cookies = {"_token": token} if token else {}
        return self._request("GET", path, headers={"Accept": "text/html"}, cookies=cookies)

    def _request(self, method: str, path: str, **more: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            url = f"{self.airflow.url}{path}"
            return session.request(method, url, allow_redirects=False, timeout=30, **more)


PASSWORDS = "airflow/simple_auth_manager_passwords.json.generated"


@pytest.fixture(scope="module")
def site(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Airflow with pipelines that have a past, whose topics have some more records. Spark is not needed."""
    home = tmp_path_factory.mktemp("page")
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    seeded = Seeded(home, now=time.time() - (BATCHES + 1) * 300, offsets=OFFSETS)
    with KafkaBroker(home) as broker, ExitStack() as end:
        produce(broker.bootstrap_servers, seed(seeded))
        nowhere = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": free_port()}
        env = environment(home, REPOSITORY, broker.bootstrap_servers) | seeded.environment
        env |= failed_batch.trusted_modules(home)
        env |= {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(nowhere),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,reader:viewer",
        }
        airflow = AirflowStack(home, REPOSITORY / "dags", REPOSITORY / "plugins", env)
        end.callback(airflow.stop)
        airflow.start()
        airflow.wait_ready()
        airflow.wait_dag("availability")
        airflow.trigger("availability", LAST_RUN)
        note_run(seeded, airflow)
        airflow.unpause("availability")
        ended = airflow.wait_run("availability", LAST_RUN)
        assert ended.state == "success", ended.log_tail
        yield Site(airflow, airflow.password)


def note_run(seeded: Seeded, airflow: AirflowStack) -> None:
    """Let Airflow's run, which waits for its DAG, be the one that planned the last batch."""
    made = airflow.api("GET", f"/dags/availability/dagRuns/{LAST_RUN}")["run_after"]
    run_id = ledger_run_id(LAST_RUN, datetime.fromisoformat(made.replace("Z", "+00:00")))
    with seeded.app.ledger._engine.begin() as connection:
        for table in (schema.plans, schema.runs):
            same = and_(table.c.pipeline == "availability", table.c.run_id == LAST_RUN)
            connection.execute(update(table).where(same).values(run_id=run_id))


def seed(seeded: Seeded) -> list[str]:
    """Pipelines in all states; the topics that were read."""
    end = seeded.now
    pipelines = {
        name: seeded.add_sample(name)
        for name in ("availability", "quiet_users", "rate_limited", "visitor_batches", "screw_fastening")
    }
    counts = {"suppression-buffer-records": 38.0, "suppression-buffer-bytes": 9_400.0}
    for name, more in {"availability": {}, "quiet_users": counts, "visitor_batches": counts}.items():
        seeded.now = end
        seeded.day(pipelines[name], BATCHES - 1, **more)
        rows = [unusable(BATCHES * OFFSETS - 1 - n, value) for n, value in enumerate(UNUSABLE)]
        last = {"used": 97.0, "emitted": 41.0, "idempotent-update-skip": 56.0, "state-rows": 4_910.0}
        seeded.batch(pipelines[name], BATCHES, {**last, **more}, rows if name == "availability" else ())
    seeded.now = end
    seeded.day(pipelines["rate_limited"], 12)
    what = "Batch 13 of rate_limited/1 does not pass its quality suite: 3 unexpected"
    fix = "Nothing was published. Correct the data or the suite and clear this task."
    seeded.fail(pipelines["rate_limited"], 13, "validate", QualityFailed(what, fix))
    seeded.now = end
    failed_batch.add_failing_batch(seeded)
    broken = seeded.home / "pipelines" / "typo.yaml"
    sample = pipelines["availability"].text.replace("pipeline: availability", "pipeline: typo")
    broken.write_text(sample.replace("reduce: latest", "reduce: lastest"))
    return [pipelines[name].sources.topics[0] for name in pipelines if name != "screw_fastening"]


UNUSABLE = (b'{"storeId": "s1", "id": 17, "quanti', b"<script>alert('x')</script>", b"\x00\xff\xfe" * 100)


def produce(servers: str, topics: list[str]) -> None:
    """Records up to where the batches have read, and some more."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
    finally:
        admin.close()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for topic in topics:
        for _ in range(BATCHES * OFFSETS + WAITING):
            producer.produce(topic, b"{}", partition=0)
            producer.poll(0)
    assert producer.flush(60) == 0


def test_pages_need_airflow_login_and_show_lag(site: Site) -> None:
    refused = site.get("/tidegate/")
    assert refused.status_code == 303
    assert "/auth/login?next=" in refused.headers["location"]
    page = site.get("/tidegate/", site.token("reader"))
    assert page.status_code == 200
    (row,) = re.findall(r"<tr>\s*<td><a[^>]*>availability</a>.*?</tr>", page.text, flags=re.DOTALL)
    cells = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
    assert (cells[1], cells[2], cells[4]) == ("ok", str(BATCHES), str(WAITING))


def test_page_offers_doctor_which_asks_the_broker(site: Site) -> None:
    page = site.get("/tidegate/pipelines/availability/check", site.token("reader"))
    assert "The topic availability does not exist" in page.text  # which nothing was sent to


def test_each_task_leads_to_its_batch(site: Site) -> None:
    token = site.token("reader")
    for task in ("plan", "compute", "validate", "commit", "publish"):
        path = f"/dags/availability/dagRuns/{LAST_RUN}/taskInstances/{task}/links"
        link = site.airflow.api("GET", path)["extra_links"]["Tidegate batch"]
        assert link == f"/plugin/tidegate/tidegate/pipelines/availability/runs/{LAST_RUN}"
        answer = site.get(link.removeprefix("/plugin/tidegate"), token)
        assert answer.headers["location"].endswith(f"/batches/{BATCHES}?generation=1")


@pytest.fixture
def window(site: Site, tmp_path: Path) -> Iterator[Browser]:
    """A browser in which the reader is logged in."""
    with browser(tmp_path) as opened:
        opened.resize(1360, 1000)
        opened.prefer("light")
        opened.open(f"{site.airflow.url}/tidegate/pipelines/nobody")
        opened.set_cookie("_token", site.token("reader"))
        yield opened


def picture(window: Browser, name: str, folder: Path) -> Path:
    """A screenshot, where it is wanted."""
    path = Path(os.environ.get("TIDEGATE_SCREENSHOTS") or folder) / f"{name}.png"
    window.screenshot(path)
    assert path.stat().st_size < 200_000
    return path


def test_pages_are_framed_by_airflow_with_links(site: Site, window: Browser) -> None:
    window.open(f"{site.airflow.url}/plugin/tidegate")
    window.enter_frame(FRAME)
    assert window.text("h1") == "Pipelines"
    window.click("a[href$='/pipelines/availability']")
    window.until(lambda: window.text("h1") == "availability", "the pipeline's page")
    window.leave_frame()
    path = "/plugin/tidegate/tidegate/pipelines/availability"
    window.until(lambda: window.url.endswith(path), "its address")
    window.enter_frame(FRAME)
    assert window.complaints() == []
    window.click(f"a[href$='/runs/{LAST_RUN}']")
    window.leave_frame()
    run_page = f"{site.airflow.url}/dags/availability/runs/{LAST_RUN}"
    window.until(lambda: window.url.startswith(run_page), "the run in Airflow")


def test_framed_page_has_its_own_address(site: Site, window: Browser) -> None:
    window.open(f"{site.airflow.url}/plugin/tidegate/tidegate/pipelines/availability/runs/{LAST_RUN}")
    window.enter_frame(FRAME)
    window.until(lambda: window.text("h1") == f"Batch {BATCHES}", "the batch's page")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_the_colours_of_airflow(site: Site, window: Browser, tmp_path: Path, scheme: str) -> None:
    window.prefer(scheme)
    for name, path in {"pipelines": "", "pipeline": "/tidegate/pipelines/availability"}.items():
        window.open(f"{site.airflow.url}/plugin/tidegate{path}")
        window.enter_frame(FRAME)
        window.find("table")
        colour = window.script("return getComputedStyle(document.body).backgroundColor")
        is_dark = sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128
        assert is_dark == (scheme == "dark")
        window.leave_frame()
        picture(window, f"{name}-{scheme}", tmp_path)


@pytest.mark.parametrize("width", [480, 900, 1600])
def test_no_page_is_wider_than_its_window(site: Site, window: Browser, width: int) -> None:
    window.resize(width, 900)
    pages = ("", "?q=nothing", "dags/availability", "dags/rate_limited", "dags/screw_fastening", "dags/typo")
    for page in (*pages, f"dags/availability/batches/{BATCHES}", "dags/nobody"):
        window.open(f"{site.airflow.url}/tidegate/{page}")
        window.find("h1")
        overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert window.script(overflow) <= 0, page


def test_record_content_is_text_in_the_browser(site: Site, window: Browser) -> None:
    window.open(f"{site.airflow.url}/tidegate/pipelines/availability")
    assert "<script>alert('x')</script>" in window.text("section:last-of-type")
    assert window.script("return document.scripts.length") == 1


@pytest.fixture(scope="module")
def failed(site: Site) -> RunEnd:
    """A run whose batch its quality suite has stopped."""
    run_id = f"run-{failed_batch.SEQ}"
    site.airflow.wait_dag(failed_batch.NAME)
    site.airflow.unpause(failed_batch.NAME)
    site.airflow.trigger(failed_batch.NAME, run_id)
    return site.airflow.wait_run(failed_batch.NAME, run_id)


def test_stopping_suite_is_logged_and_notified(site: Site, failed: RunEnd) -> None:
    states = {task.task_id: (task.state, task.try_number) for task in failed.tasks}
    assert (states["validate"], states["commit"][0]) == (("failed", 1), "upstream_failed")
    table = [
        re.split(r" *\| *", line.strip("| ")) for line in failed.log_tail.splitlines() if "| expect_" in line
    ]
    assert [(row[0], row[1], row[3]) for row in table] == [
        ("FAIL", "critical", "price"),
        ("ok", "critical", "price"),
        ("FAIL", "warning", "currency"),
        ("ok", "info", "price"),
        ("ok", "critical", ""),
    ]
    home = site.airflow.log.parent.parent
    assert "price=-1.0" in failed.log_tail
    alert = (home / "alert.txt").read_text()
    assert alert.startswith(f"validate: prices {failed.run_id}: prices on the values of prices: 2 of 5 ")


@pytest.mark.long
def test_failed_batch_is_in_log_docs_and_page(
    site: Site, failed: RunEnd, window: Browser, tmp_path: Path
) -> None:
    run = f"{failed.dag_id}/runs/{failed.run_id}"
    window.resize(1360, 860)
    window.open(f"{site.airflow.url}/dags/{run}/tasks/validate?log_level=warning")
    window.until(lambda: "price=-1.0" in window.text("body"), "the log")
    picture(window, "failed-log", tmp_path)
    window.resize(1360, 1500)
    window.open(
        f"{site.airflow.url}/plugin/tidegate/tidegate/pipelines/{failed.dag_id}/quality/{failed.run_id}"
    )
    window.enter_frame(FRAME)
    window.until(lambda: "-1" in window.text("body"), "the page of Data Docs")
    window.leave_frame()
    picture(window, "data-docs", tmp_path)
    window.resize(1360, 1000)
    window.open(f"{site.airflow.url}/plugin/tidegate/tidegate/pipelines/{run}")
    window.enter_frame(FRAME)
    window.until(lambda: "QualityFailed in validate" in window.text("body"), "the batch's page")
    assert 'such as key={"storeId":"s3","id":1017}, price=-1.0' in window.text("body")
    window.leave_frame()
    picture(window, "failed-batch", tmp_path)
