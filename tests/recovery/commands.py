"""`tidegate recover` as a person runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from click.testing import CliRunner, Result

from tidegate.cli import cli


def recover(environment: Mapping[str, str], pipeline: str, *options: str) -> Result:
    """Run the command, whose errors are in the result."""
    return CliRunner().invoke(cli, ["recover", pipeline, *options], env=dict(environment))


def shown(environment: Mapping[str, str], pipeline: str, *options: str) -> dict[str, Any]:
    """Return what the command prints with --json."""
    result = recover(environment, pipeline, *options, "--json")
    assert result.output.startswith("{"), (result.output, result.exception)
    document: dict[str, Any] = json.loads(result.output)
    return document
