"""The console without Airflow: what it shows, and to whom."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment
from tests.seeded import Seeded, emission, unusable
from tidegate.console.local import listen
from tidegate.errors import SetupFailed

PAGE = "/pipelines/availability"


@pytest.fixture
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    """Three batches of one pipeline, the last with a record in quarantine."""
    made = Seeded(tmp_path)
    set_environment(monkeypatch, made.environment)
    pipeline = made.add_sample("availability")
    made.day(pipeline, 2)
    made.batch(
        pipeline, 3, {"used": 999, "emitted": 100}, [unusable(2001, b"odd <b>")], outbox=[emission("s<1>", 7)]
    )
    return made


@pytest.fixture
def client(seeded: Seeded) -> Iterator[TestClient]:
    with served() as client:
        yield client


@pytest.mark.parametrize(
    "path",
    ["/", "/pipelines/availability", "/pipelines/availability/batches/3", "/pipelines/availability/check"],
)
def test_page_is_shown_without_airflow(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert "availability" in answer.text
    assert "in Airflow" not in answer.text


def test_person_on_this_machine_sees_records(client: TestClient) -> None:
    assert "odd &lt;b&gt;" in client.get(PAGE).text


def test_key_is_shown_with_its_emissions(client: TestClient) -> None:
    all_of_them, of_key = (
        client.get(f"{PAGE}/emissions", params=asked).text for asked in ({}, {"key": "s<1>"})
    )
    assert "key=s%3C1%3E" in all_of_them
    assert "{&#34;n&#34;:7}" in of_key
    assert "s<1>" not in all_of_them + of_key


def test_stage_without_emissions_has_no_page(client: TestClient) -> None:
    assert client.get(f"{PAGE}/emissions?stage=other").status_code == 404


def test_run_leads_to_its_batch(client: TestClient) -> None:
    answer = client.get(f"{PAGE}/runs/run-2", follow_redirects=False)
    assert answer.headers["location"] == f"{PAGE}/batches/2?generation=1"


def test_other_host_names_are_refused(client: TestClient) -> None:
    assert client.get("/", headers={"host": "shop.example"}).status_code == 400


def test_a_page_takes_no_form(client: TestClient) -> None:
    assert client.post(PAGE).status_code == 405


def test_port_in_use_names_the_option() -> None:
    with listen(0) as taken, pytest.raises(SetupFailed, match="--port 0"):
        listen(taken.getsockname()[1])


@pytest.mark.process
def test_command_serves_until_it_is_interrupted(seeded: Seeded) -> None:
    command = [sys.executable, "-c", "from tidegate.cli import main; main()", "ui", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            (url,) = re.findall(r"http://\S+/", process.stdout.readline())
            assert "availability" in requests.get(url, timeout=600).text
            process.send_signal(signal.SIGINT)
            assert process.wait(600) == 0
        finally:
            process.kill()
