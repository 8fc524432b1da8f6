"""Options and arguments that several commands use."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import click

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
    from tidegate.spec.folder import pipeline_files

    try:
        folder = Settings.from_environment().pipelines
    except TidegateError:
        return []
    return [file.stem for file in pipeline_files(folder) if file.stem.startswith(incomplete)]


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
