"""A recognisable word in the secrets of every kind of Kafka connection is in nothing that a batch writes or
prints, whether it succeeds or fails, not even where everything is logged."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.sampling import sampled
from tests.secured import CANARY, KINDS, PASSWORD, Properties, SecuredBroker
from tests.world import World, key_of
from tidegate.app import App
from tidegate.cli import cli
from tidegate.errors import TidegateError
from tidegate.kafka.properties import secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]
SECRET_KINDS = [kind for kind in KINDS if kind not in ("nothing", "TLS, a file", "TLS, a text")]
SAMPLE = ("mutual TLS, files", "SCRAM-SHA-512 by TLS")
COMMANDS = (
    ["status"],
    ["plan", "availability"],
    ["doctor", "availability"],
    ["emissions", "availability"],
)
SHORTEST_LINE = 20
"""Of a key: shorter ones are in other texts by chance."""


@pytest.fixture
def environment(
    secured: SecuredBroker, world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return the environment of a world on the secured broker, whose own clients need no login; tidegate
    needs one of a kind.
    """
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "tests.secured")
    return world.environment | {"TIDEGATE_KAFKA": json.dumps(KINDS[kind](secured))}


@pytest.fixture
def world(secured: SecuredBroker, spark: SparkSession, tmp_path: Path) -> World:
    return World(secured.bootstrap_servers, tmp_path, lambda _: spark)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", sampled(SECRET_KINDS, SAMPLE))
def test_no_secret_of_a_connection_is_shown(
    world: World,
    secured: SecuredBroker,
    kind: str,
    environment: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    world.app = App.from_environment(environment)
    # Spark computes it: what it says of a failure has its settings
    world.write_pipeline(**{"quantity > 0": "hex(quantity) = '' or (10 / quantity) > 0"})
    with caplog.at_level(logging.DEBUG):
        world.stock(1)
        world.run()
        shown = [_called(arguments, environment) for arguments in COMMANDS]
        world.stock(0)
        with pytest.raises(Exception, match="try_divide") as failed:
            world.run()
        shown += [_traceback(failed.value), *_refused(environment, KINDS[kind](secured))]
    assert world.published() == {key_of(): [True]}
    shown += [*map(repr, (world.app, world.app.settings)), caplog.text, *capfd.readouterr()]
    texts = [*shown, *_files(world.folder), str(world.open_session(1).conf.getAll)]
    assert [text for text in texts if f"kafka:{world.sink}" in text], "what is no secret is found"
    for secret in _words(KINDS[kind](secured)):
        assert [_line_of(secret, text) for text in texts if secret in text] == []


def _called(arguments: list[str], environment: dict[str, str]) -> str:
    result = CliRunner().invoke(cli, arguments, env=environment)
    return f"{result.output}{result.exception!r}"


def _refused(environment: dict[str, str], properties: Properties) -> Iterator[str]:
    """Yield the error of each property in turn when it is wrong."""
    for name, text in properties.items():
        wrong = json.dumps(properties | {name: f"{text}{CANARY}"})
        app = App.from_environment(environment | {"TIDEGATE_KAFKA": wrong})
        try:
            app.settings.kafka().for_python()
        except TidegateError as error:
            yield _traceback(error)


def _line_of(secret: str, text: str) -> str:
    """Return the beginning of the line that has the secret, and what precedes it."""
    line = text.partition(secret)[0].rpartition("\n")[2]
    return f"{line[:100]} … {line[-60:]}"


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _words(properties: Properties) -> Iterator[str]:
    """Yield the texts to search for: the word, also in base64, each secret, and each line of a key."""
    yield CANARY
    for offset, start in enumerate((0, 2, 3)):
        text = base64.b64encode(b" " * offset + CANARY.encode()).decode()
        yield text[start : (offset + len(CANARY)) * 8 // 6]
    for secret in (*secrets(properties), PASSWORD):
        yield secret
        yield from (line for line in secret.splitlines() if len(line) > SHORTEST_LINE and "-----" not in line)


def _files(folder: Path) -> Iterator[str]:
    """Yield the text of all files of a batch, and the rows of compressed files."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.read_bytes().decode(errors="replace")
        if path.suffix == ".parquet":
            yield repr(pq.read_table(path, partitioning=None).to_pylist())
