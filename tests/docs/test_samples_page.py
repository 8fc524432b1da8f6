"""docs/samples.md: each sample prints what stands below its command."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "samples.md").read_text()
SAMPLES = re.findall(
    r"^```sh\n(.*?)\|\s+tidegate (simulate .*?)\n```\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
)


def test_the_page_has_every_sample() -> None:
    shown = [Path(shlex.split(command)[1]).name for _, command, _ in SAMPLES]
    assert sorted(shown) == sorted(path.name for path in (ROOT / "include" / "pipelines").glob("*.yaml"))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("records", "command", "output"), SAMPLES, ids=[shlex.split(command)[1] for _, command, _ in SAMPLES]
)
def test_a_sample_prints_what_the_page_says(
    records: str, command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    events = subprocess.run(["bash", "-c", records], capture_output=True, text=True, check=True).stdout
    environment = {"TIDEGATE_HOME": str(tmp_path), "TIDEGATE_SPARK_MASTER": "local[2]"}
    result = CliRunner().invoke(cli, shlex.split(command), input=events, env=environment)
    assert result.exit_code == 0, result.output
    assert result.stdout == output
