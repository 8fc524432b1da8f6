"""docs/tutorial.md, done: each file is written and each command run as it stands there.

Of its commands only `make` is not run, which installs and starts: the test's broker and Spark Connect server
stand for what `make up` leaves running, and the variables that it prints are theirs. Airflow has no part in
it. The tour of the console is made in a real browser, and `make screenshots` takes its pictures here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import chromium
from tests.pictures import take_picture
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.spark_server import SparkServer

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text()


@dataclass(frozen=True)
class Block:
    """Code of the page: `title` is a file's name, `output` what the page shows below a command."""

    language: str
    title: str
    text: str
    output: str = ""


def blocks() -> Iterator[Block]:
    """The page's code in order, with the output in the block that it belongs to."""
    last = None
    for language, title, text in re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE
    ):
        if language == "text":
            assert last is not None
            last = replace(last, output=text)
        else:
            if last is not None:
                yield last
            last = Block(language, title, text)
    if last is not None:
        yield last


def done_by_the_test(block: Block) -> bool:
    """Return whether a block is a `make` command, or its output."""
    return block.text.startswith("make ") or "as printed" in block.text


def run(block: Block, folder: Path, environment: dict[str, str]) -> tuple[Path, dict[str, str]]:
    """Run a block in bash, and look for what the page shows. Returns folder and environment after it."""
    note = folder / ".after"
    script = f"{block.text}\nfailed=$?; env -0 > '{note}'; pwd > '{note}.folder'; exit $failed"
    expected = re.search(r"# exit code (\d+)", block.text)
    result = subprocess.run(
        ["bash", "-e" if expected is None else "+e", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = result.stdout + result.stderr
    assert result.returncode == (int(expected[1]) if expected else 0), printed
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for shown in block.output.splitlines():
        pattern = ".*".join(map(re.escape, " ".join(shown.split()).split("…")))
        assert any(re.fullmatch(pattern, line) for line in lines), f"{shown}\nis not in\n{printed}"
    after = dict(entry.split("=", 1) for entry in note.read_text().split("\0") if entry)
    place = Path(f"{note}.folder").read_text().strip()
    return Path(place), after


def is_console(block: Block) -> bool:
    """Return whether a block serves the console until it is interrupted."""
    return block.text.startswith("tidegate ui")


def take_tour(folder: Path, environment: dict[str, str]) -> None:
    """Serve the console, and look at the pages of the tour as a person does."""
    command = ["tidegate", "ui", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None
            (url,) = re.findall(r"http://\S+/", console.stdout.readline())
            with chromium() as browser:
                visit(browser.new_page(viewport={"width": 1200, "height": 640}), url)
            console.send_signal(signal.SIGINT)
            assert console.wait(600) == 0
        finally:
            console.kill()


def visit(page: Page, url: str) -> None:
    """Follow the tour's text from page to page."""
    page.goto(url)
    expect(page.get_by_role("row", name="shelf withheld")).to_be_visible()
    take_picture(page, "tour-pipelines")
    page.get_by_role("link", name="shelf", exact=True).click()
    expect(page.get_by_role("table", name="Records in quarantine")).to_contain_text("shelf[0] 3")
    page.set_viewport_size({"width": 1200, "height": 900})
    take_picture(page, "tour-pipeline")
    visit_key(page)
    pages = page.get_by_role("navigation", name="Pages of shelf")
    pages.get_by_role("link", name="Emissions").click()
    expect(page.get_by_role("table").first).to_contain_text("tea")
    take_picture(page, "emissions")
    pages.get_by_role("link", name="Generations").click()
    page.get_by_role("link", name="what changes").click()
    expect(page.get_by_role("heading", name="What a promotion would send")).to_be_visible()
    take_picture(page, "generations")
    pages.get_by_role("link", name="Check now").click()
    page.set_viewport_size({"width": 1200, "height": 400})
    expect(page.get_by_role("table", name="Findings")).to_contain_text("shelf")
    take_picture(page, "check")


def visit_key(page: Page) -> None:
    """Search for a key, and read its records of a batch from Kafka."""
    page.get_by_role("link", name="Keys", exact=True).click()
    page.get_by_label("Key", exact=True).fill("tea")
    page.get_by_role("button", name="Show").click()
    page.get_by_label("Records of batch").fill("1")
    page.get_by_role("button", name="Read from Kafka and decide again").click()
    expect(page.get_by_role("region", name=re.compile("Records of batch 1"))).to_contain_text("shelf[0]")
    page.evaluate("scrollTo(0, 0)")
    take_picture(page, "keys")


@pytest.fixture
def environment(broker: KafkaBroker, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a shell after the page's first `export`."""
    home = tmp_path / "home"
    home.mkdir()
    with SparkServer(home, conf={"spark.master": "local[2]"}) as spark:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        yield {
            **inherited,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "200",  # tables are not folded
            "TIDEGATE_HOME": str(home),
            "TIDEGATE_KAFKA": broker.bootstrap_servers,
            "TIDEGATE_PAGE_WAIT": "20",  # the pages must show the lag, also on a busy machine
            "TIDEGATE_SPARK_MASTER": spark.url,
        }


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_every_tutorial_command_and_file_works(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path
    ran = 0
    for block in blocks():
        if block.title:
            (folder / block.title).write_text(block.text)
        elif is_console(block):
            take_tour(folder, environment)
        elif not done_by_the_test(block):
            assert block.language == "sh"
            folder, environment = run(block, folder, environment)
            ran += 1
    assert ran > 10


def test_runs_all_but_make() -> None:
    lines = [line for block in blocks() if done_by_the_test(block) for line in block.text.splitlines()]
    assert [line.partition("=")[0] for line in lines] == [
        *("make up", "export TIDEGATE_HOME", "export PATH", "make down")
    ]


def test_page_has_a_path_for_each_file() -> None:
    titles = [block.title for block in blocks() if block.language in ("yaml", "json", "python")]
    assert len(titles) >= 6
    assert "" not in titles
