"""A suite over a table in memory, many times in one process: nothing is written, and no page is built."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.errors import SettingsInvalid
from tidegate.quality.builtin.facts import StageFacts, known_facts

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Evaluated:
    """How one expectation went. `column`: what it is of, "" for the whole; of several, with commas.

    `observed`: the value that it looked at, if it has one; `unexpected` of `elements` values were not
    expected, and `sample` are some of them. `error`: why it could not be evaluated, which is a failure.
    """

    type: str
    column: str
    severity: str
    passed: bool
    observed: Any = None
    elements: int | None = None
    unexpected: int | None = None
    sample: Sequence[Any] = ()
    error: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_critical(self) -> bool:
        """Whether it failed in a way that stops a batch."""
        return not self.passed and self.severity == SEVERITIES[0]


def read_suite(file: Path) -> dict[str, Any]:
    """A suite file as it is written. Raises SettingsInvalid."""
    try:
        suite = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsInvalid(
            f"The quality suite {file} does not exist", "Write it, or name another."
        ) from error
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"{file} is not a JSON file: {error}", "Correct the file.") from error
    if not isinstance(suite, dict) or not isinstance(suite.get("expectations"), list):
        raise SettingsInvalid(f"{file} is not a Great Expectations suite", "It needs a list `expectations`.")
    return suite


def column_of(kwargs: Mapping[str, Any]) -> str:
    """What an expectation is of: its column, or its columns."""
    names = [kwargs[name] for name in ("column", "column_A", "column_B") if name in kwargs]
    names += kwargs.get("column_list") or kwargs.get("column_set") or []
    return ", ".join(map(str, names))


Evaluate = Callable[[Mapping[str, Any], pa.Table, StageFacts | None], tuple[Evaluated, ...]]
"""A suite as `read_suite` gives it, over a table, with what its built-in expectations know of the batch."""


def evaluator() -> Evaluate:
    """What evaluates suites, as often as it is called. It raises SettingsInvalid for what is no suite.

    It imports Great Expectations, which takes seconds.
    """
    import tidegate.quality.builtin.expectations  # noqa: F401  # makes their types known
    from tidegate.quality.expectations import gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    rows = asset.add_batch_definition_whole_dataframe("all")

    def evaluate(
        suite: Mapping[str, Any], table: pa.Table, facts: StageFacts | None
    ) -> tuple[Evaluated, ...]:
        try:
            made = gx.ExpectationSuite(name="suite", expectations=list(suite["expectations"]))
        except (ValueError, TypeError, KeyError, gx.exceptions.GreatExpectationsError) as error:
            raise SettingsInvalid(
                f"The suite {suite.get('name', '')} is not one of Great Expectations: "
                f"{str(error).splitlines()[0]}",
                "Correct the file.",
            ) from error
        batch = rows.get_batch(batch_parameters={"dataframe": table.to_pandas()})
        with known_facts(facts):
            result = batch.validate(made, result_format="SUMMARY")
        return tuple(map(_evaluated, result.results))

    return evaluate


def _evaluated(result: Any) -> Evaluated:
    config, details = result.expectation_config, result.result or {}
    kwargs = {name: value for name, value in config.kwargs.items() if name != "batch_id"}
    return Evaluated(
        type=config.type,
        column=column_of(kwargs),
        severity=str(getattr(config.severity, "value", config.severity)),
        passed=bool(result.success),
        observed=details.get("observed_value"),
        elements=details.get("element_count"),
        unexpected=details.get("unexpected_count"),
        sample=tuple(details.get("partial_unexpected_list") or ()),
        error=None if result.success else _error(result.exception_info or {}),
        kwargs=kwargs,
    )


def _error(info: Mapping[str, Any]) -> str | None:
    """The message of what was raised: of the expectation, or of one of the metrics that it needs."""
    if "raised_exception" in info:
        infos = [info]
    else:
        infos = [part for part in info.values() if isinstance(part, dict)]
    messages = [part.get("exception_message") for part in infos if part.get("raised_exception")]
    return next((str(message).splitlines()[0] for message in messages if message), None)
