"""docker-compose.yaml as its engine sees it: parsed, with the variables of an `.env` put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yaml"
ENV_EXAMPLE = ROOT / ".env.example"
OURS = "tidegate:local"

_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<operator>:[-?])(?P<argument>[^}]*))?\}")


@cache
def raw() -> dict[str, Any]:
    """The file as it is, variables and all; no test changes it."""
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


def services() -> dict[str, dict[str, Any]]:
    """The services of the file as it is."""
    by_name: dict[str, dict[str, Any]] = raw()["services"]
    return by_name


def resolved(variables: Mapping[str, str]) -> dict[str, Any]:
    """The file with its variables put in; KeyError for one that is required and not there."""
    document: dict[str, Any] = interpolate(raw(), variables)
    return document


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """`${A:?why}`, `${A:-default}` and `$$`, in every text of `value`."""
    if isinstance(value, dict):
        return {name: interpolate(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _replacement(match, variables), value)
    return value


def _replacement(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    value = variables.get(match["name"], "")
    if match["operator"] == ":?" and not value:
        raise KeyError(match["name"])
    return value or (match["argument"] if match["operator"] == ":-" else "")


def required_variables() -> set[str]:
    """Return the variables without a default, which are the secrets."""
    return set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))


def default_variables() -> dict[str, str]:
    """Return the variables with a default, and the defaults."""
    return dict(re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE.read_text()))


def filled() -> dict[str, str]:
    """A value for every secret, by which it can be told where it goes."""
    return {name: f"secret-{name}" for name in required_variables()}


def environment_of(service: Mapping[str, Any]) -> dict[str, str]:
    """A service's environment, as texts."""
    return {name: str(value) for name, value in service.get("environment", {}).items()}


def texts(value: Any) -> list[str]:
    """Every text in a piece of the file."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [str(value)]


def mounts_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Folder in the container -> volume."""
    pairs = (text.split(":") for text in service.get("volumes", []))
    return {folder: volume for volume, folder in pairs}
