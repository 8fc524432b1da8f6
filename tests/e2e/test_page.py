"""The console in a real Airflow and browser: what each role sees and may do, frames, colours and actions.

`make test` has the console behind the login of a real API server (tests/plugins/test_ui.py), in a browser
(tests/console/test_browser.py), and in the Airflow of tests/e2e/test_airflow.py.

`make screenshots` also takes the pictures of the documentation here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, FrameLocator, Page, expect

from tests.browser import chromium, overflow, structure, violations
from tests.console.shop import routes
from tests.e2e import failed_batch
from tests.e2e.site import BATCHES, LAST_RUN, OF_OTHER_TEAM, WAITING, Site, running_site
from tests.pictures import take_picture
from tidegate_dev.airflow_client import RunEnd

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.long]

FRAME = "iframe[title='Tidegate']"
PIPELINE = "/plugin/tidegate/tidegate/pipelines/availability"
PLACES = {"dag_id": "availability", "seq": str(BATCHES), "run_id": LAST_RUN, "path": "index.html"}
PAGES = [
    re.sub(r"{(\w+)(:path)?}", lambda name: PLACES[name[1]], route.path)
    for route in routes()
    if route.path != "/"
]
"""The pages of a pipeline, from the routes: a new page takes part by itself."""
FORGED = """
(action) => {
  const form = document.createElement("form"), field = document.createElement("input");
  Object.assign(form, {action, method: "POST", enctype: "text/plain"});
  Object.assign(field, {name: '{"dag_run_id": "forged", "logical_date": null, "x": "', value: '"}'});
  form.append(field);
  document.body.append(form);
  form.submit();
}
"""
"""A form whose text is JSON, as far as a form of HTML can send it."""
MAY_TRIGGER = {"admin": True, "user": True, "viewer": False, "stranger": False}
MAY_READ = {"admin": True, "user": True, "viewer": True, "stranger": False}


@pytest.fixture(scope="module")
def site(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("page"), installed / "jars") as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def log_in(site: Site, browser: Browser) -> Iterator[Callable[[str], BrowserContext]]:
    """Open the browser of a user, who is logged in."""
    contexts: dict[str, BrowserContext] = {}

    def context_of(user: str) -> BrowserContext:
        if user not in contexts:
            contexts[user] = browser.new_context(viewport={"width": 1360, "height": 1000})
            cookie = {"name": "_token", "value": site.token(user), "url": site.airflow.url}
            contexts[user].add_cookies([cookie])
        return contexts[user]

    yield context_of
    for context in contexts.values():
        context.close()


@pytest.fixture
def window(log_in: Callable[[str], BrowserContext]) -> Iterator[Page]:
    """A window of the viewer."""
    page = log_in("viewer").new_page()
    page.emulate_media(color_scheme="light")
    yield page
    page.close()


def framed(window: Page, site: Site, path: str) -> FrameLocator:
    """Open a page of Airflow with the console in its frame."""
    window.goto(f"{site.airflow.url}{path}")
    return window.frame_locator(FRAME)


def test_pages_need_airflow_login_and_show_lag(site: Site) -> None:
    refused = site.get("/tidegate/")
    assert refused.status_code == 303
    assert "/auth/login?next=" in refused.headers["location"]
    page = site.get("/tidegate/", site.token("viewer"))
    assert page.status_code == 200
    (row,) = re.findall(r"<tr>\s*<td><a[^>]*>availability</a>.*?</tr>", page.text, flags=re.DOTALL)
    cells = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
    assert (cells[1], cells[2], cells[4]) == ("ok", str(BATCHES), str(WAITING))


def test_login_leads_back_to_the_page(site: Site, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.airflow.url}/tidegate/pipelines/availability")
    page.get_by_label("Username").fill("user")
    page.get_by_label("Password").fill(site.password("user"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("availability")
    context.close()


@pytest.mark.parametrize("user", list(MAY_READ))
def test_role_sees_pages_of_its_dags_only(site: Site, user: str) -> None:
    token = site.token(user)
    own, other = ("availability", OF_OTHER_TEAM) if MAY_READ[user] else (OF_OTHER_TEAM, "availability")
    listed = site.get("/tidegate/", token).text
    assert f"/tidegate/pipelines/{own}" in listed
    assert (f"/tidegate/pipelines/{other}" in listed) == (user == "admin")
    for path in PAGES:
        answer = site.get(f"/tidegate{path}", token)
        assert answer.status_code in ((200, 303) if MAY_READ[user] else (403,)), path
        assert ("availability" in answer.text + answer.headers.get("location", "")) == MAY_READ[user], path


@pytest.mark.parametrize("user", list(MAY_TRIGGER))
def test_action_takes_the_right_to_trigger(site: Site, user: str) -> None:
    page = site.get("/tidegate/pipelines/availability/actions", site.token(user))
    if MAY_READ[user]:
        assert ("You may not trigger this DAG" in page.text) == (not MAY_TRIGGER[user])
    if not MAY_TRIGGER[user]:
        assert site.trigger(user, "availability", f"by-{user}", {"action": "check"}) == 403
    for method in ("POST", "PUT", "DELETE"):
        headers = {"Cookie": f"_token={site.token(user)}"}
        answer = site.request(method, "/tidegate/pipelines/availability/actions", headers=headers)
        assert answer.status_code == 405


def test_action_runs_once_and_names_its_user(site: Site) -> None:
    assert site.trigger("user", "availability", "checked", {"action": "check"}) == 200
    ended = site.airflow.wait_run("availability", "checked")
    assert ended.state == "success", ended.log_tail
    assert {task.task_id: task.state for task in ended.tasks}["commit"] == "skipped"
    path = "/dags/availability/dagRuns/checked/taskInstances/plan/logs/1?full_content=true"
    assert "check: WRONG: pipeline availability" in str(site.airflow.api("GET", path))
    events = site.airflow.api("GET", "/eventLogs?dag_id=availability&event=trigger_dag_run&limit=100")
    assert [row["owner"] for row in events["event_logs"] if "checked" in str(row)] == ["user"]
    assert site.airflow.api("GET", "/dags/availability/dagRuns/checked")["triggering_user_name"] == "user"


def test_dag_of_one_task_does_actions(site: Site) -> None:
    site.airflow.wait_dag("screw_fastening")
    site.airflow.unpause("screw_fastening")
    assert site.trigger("user", "screw_fastening", "checked", {"action": "check"}) == 200
    ended = site.airflow.wait_run("screw_fastening", "checked")
    assert [(task.task_id, task.state) for task in ended.tasks] == [("batch", "skipped")], ended.log_tail
    path = "/dags/screw_fastening/dagRuns/checked/taskInstances/batch/logs/1?full_content=true"
    assert "check: wait: pipeline screw_fastening" in str(site.airflow.api("GET", path))


def test_form_of_another_site_triggers_nothing(site: Site, log_in: Callable[[str], BrowserContext]) -> None:
    page = log_in("user").new_page()
    page.goto(site.airflow.url.replace("127.0.0.1", "localhost") + "/auth/login")  # another site by its name
    with page.expect_navigation() as forged:
        page.evaluate(FORGED, f"{site.airflow.url}/api/v2/dags/availability/dagRuns")
    assert forged.value is not None
    assert forged.value.status in (401, 403, 415, 422)
    runs = site.airflow.api("GET", "/dags/availability/dagRuns")["dag_runs"]
    assert "forged" not in [run["dag_run_id"] for run in runs]
    page.close()


def test_page_offers_doctor_which_asks_the_broker(site: Site) -> None:
    page = site.get("/tidegate/pipelines/availability/check", site.token("viewer"))
    assert "The topic availability does not exist" in page.text  # which nothing was sent to


def test_each_task_leads_to_its_batch(site: Site) -> None:
    token = site.token("viewer")
    for task in ("plan", "compute", "validate", "commit", "publish"):
        path = f"/dags/availability/dagRuns/{LAST_RUN}/taskInstances/{task}/links"
        link = site.airflow.api("GET", path)["extra_links"]["Tidegate batch"]
        assert link == f"{PIPELINE}/runs/{LAST_RUN}"
        answer = site.get(link.removeprefix("/plugin/tidegate"), token)
        assert answer.headers["location"].endswith(f"/batches/{BATCHES}?generation=1")


def test_pages_are_framed_by_airflow_with_links(site: Site, window: Page) -> None:
    complaints: list[str] = []
    window.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    frame = framed(window, site, "/plugin/tidegate")
    expect(frame.locator("h1")).to_have_text("Pipelines")
    frame.locator("a[href$='/pipelines/availability']").click()
    expect(frame.locator("h1")).to_have_text("availability")
    window.wait_for_url(f"**{PIPELINE}")
    assert complaints == []
    frame.locator(f"a[href$='/runs/{LAST_RUN}']").click()
    window.wait_for_url(f"{site.airflow.url}/dags/availability/runs/{LAST_RUN}**")


def test_framed_page_has_its_own_address(site: Site, window: Page) -> None:
    frame = framed(window, site, f"{PIPELINE}/runs/{LAST_RUN}")
    expect(frame.locator("h1")).to_have_text(f"Batch {BATCHES}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_the_colours_of_airflow(site: Site, window: Page, scheme: str) -> None:
    window.emulate_media(color_scheme=scheme)
    for name, path in {"pipelines": "/plugin/tidegate", "pipeline": PIPELINE}.items():
        frame = framed(window, site, path)
        expect(frame.locator("table").first).to_be_visible()
        colour = frame.locator("body").evaluate("(body) => getComputedStyle(body).backgroundColor")
        is_dark = sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128
        assert is_dark == (scheme == "dark")
        take_picture(window, f"{name}-{scheme}")


def test_framed_page_is_accessible(site: Site, window: Page) -> None:
    window.set_viewport_size({"width": 1360, "height": 800})
    expect(framed(window, site, f"{PIPELINE}/actions").locator("h1")).to_be_visible()
    take_picture(window, "actions-light")
    window.goto(f"{site.airflow.url}/tidegate/pipelines/availability/actions")
    assert (violations(window), structure(window), overflow(window) <= 0) == ([], [], True)


def test_record_content_is_text_in_the_browser(site: Site, window: Page) -> None:
    window.goto(f"{site.airflow.url}/tidegate/pipelines/availability")
    expect(window.locator("section").last).to_contain_text("<script>alert('x')</script>")
    assert window.evaluate("document.scripts.length") == 1


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
def test_failed_batch_is_in_log_docs_and_page(site: Site, failed: RunEnd, window: Page) -> None:
    run = f"{failed.dag_id}/runs/{failed.run_id}"
    pages = f"/plugin/tidegate/tidegate/pipelines/{failed.dag_id}"
    window.set_viewport_size({"width": 1360, "height": 700})
    window.goto(f"{site.airflow.url}/dags/{run}/tasks/validate?log_level=warning")
    expect(window.locator("body")).to_contain_text("price=-1.0")
    take_picture(window, "failed-log")
    frame = framed(window, site, f"{pages}/quality/{failed.run_id}")
    expect(frame.locator("body")).to_contain_text("-1")
    take_picture(window, "data-docs")
    window.set_viewport_size({"width": 1360, "height": 1000})
    frame = framed(window, site, f"{pages}/runs/{failed.run_id}")
    expect(frame.locator("body")).to_contain_text("QualityFailed in validate")
    expect(frame.locator("body")).to_contain_text('such as key={"storeId":"s3","id":1017}, price=-1.0')
    take_picture(window, "failed-batch")
