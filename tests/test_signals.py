"""Release on SIGTERM and Ctrl-C what a process holds, and report the signal as what it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.dev.test_processes import wait_for
from tidegate.app import App
from tidegate.ledger import Stream
from tidegate.signals import Terminated

HOLDS_A_LEASE = """
import time
import click
import tidegate.cli
from tidegate.app import App, leased
from tidegate.ledger import Stream

@click.command()
def command():
    with leased(App.from_environment(), Stream("visitors", 1), "run"):
        print("holds it", flush=True)
        time.sleep(600)

tidegate.cli.cli = command
tidegate.cli.main()
"""
COMPUTES = """
import os
import signal
import time
from pathlib import Path
from tests.model.files import GOOD
from tidegate.spark.errors import translated
from tidegate.spark.session import open_session
from tidegate.signals import raise_on_sigterm
from tidegate.yaml.load import parse_pipeline

raise_on_sigterm()
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may have it ignored
spark = open_session("local[1]")

def work(batches):
    Path(os.environ["WORKING"]).touch()
    time.sleep(600)
    yield from batches

try:
    with translated(parse_pipeline(GOOD, "p.yaml")):
        spark.range(10).mapInArrow(work, "id bigint").collect()
except BaseException as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.process
def test_sigterm_gives_the_lease_back(tmp_path: Path) -> None:
    settings = {"TIDEGATE_HOME": str(tmp_path), "TIDEGATE_PIPELINES": str(tmp_path)}
    app, stream = App.from_environment(settings), Stream("visitors", 1)
    with started(HOLDS_A_LEASE, **settings) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds it\n"
        assert app.ledger.lease_holder(stream) == "run"
        process.terminate()
        assert process.wait(600) == Terminated.exit_code == 143
    assert app.ledger.lease_holder(stream) is None


@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "message"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")]
)
@pytest.mark.sample(1)
def test_signal_during_compute_is_no_memory_error(
    number: signal.Signals, message: str, tmp_path: Path
) -> None:
    working = tmp_path / "working"
    with started(COMPUTES, WORKING=str(working)) as process:
        wait_for(lambda: working.exists() or process.poll() is not None, 120)
        process.send_signal(number)
        out, _ = process.communicate(timeout=600)
    assert out.split()[-1:] == [message]


def started(program: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process in the repository that runs a program."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
