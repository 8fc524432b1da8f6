"""Options and arguments that several commands use."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.ledger import Stream

_BATCHES = re.compile(r"(\d+)|(\d+)?\.\.(\d+)?")

instant = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"])
"""The type of an option for a point in time, in UTC."""


def epoch_ms(given: datetime) -> int:
    """Return an `instant` in epoch milliseconds."""
    return round(given.replace(tzinfo=timezone.utc).timestamp() * 1000)


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
clock = click.option(
    "--clock",
    type=instant,
    help="The instant that the batch takes as now (UTC); default: now, or --until if that is earlier.",
)
force = click.option("--force", is_flag=True, help="Allow a --clock that is later than now.")
from_start = click.option(
    "--from-start",
    is_flag=True,
    help="Send again what another generation or pipeline has sent to the same sink.",
)
until = click.option("--until", type=instant, help="Only records before this instant (UTC).")
limit = click.option("--limit", default=50, show_default=True, help="Rows to show; 0 for all.")
generation = click.option("--generation", type=int, help="Default: the one in the pipeline file.")
batch = click.option("--batch", type=int, help="Only this batch.")
stage = click.option("--stage", help="Default: the last.")
by_whom = click.option("--by", metavar="NAME", help="Who decides it; default: your login.")


@dataclass(frozen=True)
class RunOptions:
    """The options of `tidegate run`."""

    clock: datetime | None = None
    until: datetime | None = None
    run_id: str | None = None
    force: bool = False
    from_start: bool = False


def pipeline_names(_context: Any, _parameter: Any, incomplete: str) -> list[str]:
    """Return the pipelines whose names begin with `incomplete`, for shells; none if the settings cannot be
    used.
    """
    from tidegate.errors import TidegateError  # late, as everything is that help needs not
    from tidegate.settings import Settings
    from tidegate.yaml.folder import pipeline_files

    try:
        folder = Settings.from_environment().pipelines
    except TidegateError:
        return []
    return [file.stem for file in pipeline_files(folder) if file.stem.startswith(incomplete)]


def text_of(file: Path, fix: str) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; `-` is standard input.

    Raises SettingsInvalid if it cannot be read; `fix` says what the user can do then.
    """
    from tidegate.errors import SettingsInvalid

    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsInvalid(
            f"{file} is not text in UTF-8: see its byte {error.start}", "Save it as UTF-8."
        ) from error
    except OSError as error:
        raise SettingsInvalid(f"{file} cannot be read: {error.strerror}", fix) from error


def login_name() -> str:
    """Return the user's name in the operating system. Raises SettingsInvalid if there is none."""
    from tidegate.errors import SettingsInvalid

    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise SettingsInvalid("The system does not know who you are", "Say it: --by NAME.") from error


pipeline_argument = click.argument("pipeline", shell_complete=pipeline_names)


def of_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument PIPELINE, and the options of every command that shows rows of a stream."""
    for option in (as_json, limit, generation):
        command = option(command)
    return pipeline_argument(command)


def first_and_last(batches: str | None) -> tuple[int | None, int | None]:
    """Return the first and the last batch of `3..7`, `3..`, `..7` or `3`; None for no limit.

    Raises SettingsInvalid for any other text.

    Example::

        first_and_last("3..")  # (3, None)
    """
    from tidegate.errors import SettingsInvalid

    if batches is None:
        return None, None
    match = _BATCHES.fullmatch(batches)
    if match is None or not any(match.groups()):
        raise SettingsInvalid(f"--batch {batches} names no batches", "Give 3..7 (7 included), 3.., ..7 or 3.")
    only, first, last = (None if number is None else int(number) for number in match.groups())
    return (only, only) if only is not None else (first, last)


def open_stream(pipeline: str, generation: int | None) -> tuple[App, Stream]:
    """Return the app for reading, and the stream of a pipeline's file, or of the generation that is given."""
    from tidegate.app import App

    app = App.for_reading()
    return app, stream_named(app, pipeline, generation)


def stream_named(app: App, pipeline: str, generation: int | None) -> Stream:
    """Return the stream of a pipeline's file, or of the generation that is given."""
    from tidegate.app import stream_of
    from tidegate.ledger import Stream

    if generation is None:
        return stream_of(app.pipeline(pipeline))
    return Stream(pipeline_named(app, pipeline), generation)


def pipeline_named(app: App, name: str) -> str:
    """Return the name of a pipeline of the ledger, also one that was dropped, or of a pipeline file.

    Raises PipelineInvalid if neither has the name.
    """
    if name in {stream.pipeline for stream in app.ledger.streams()} or app.ledger.dropped_streams(name):
        return name
    return app.pipeline(name).pipeline
