"""Run Great Expectations on the rows of a batch: from an audit to a verdict and a page of Data Docs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidegate.errors import SettingsInvalid
from tidegate.quality.audit import Audit
from tidegate.quality.builtin import expectations as _  # noqa: F401  # registers their types
from tidegate.quality.builtin.facts import provide_facts
from tidegate.quality.evaluate import Evaluation, evaluate
from tidegate.quality.frames import PART_ROWS
from tidegate.quality.pages import page_of
from tidegate.quality.site import publish_page
from tidegate.quality.verdict import MOST_FAILING_ROWS, ExpectationResult, Verdict, cut


def check(audit: Audit, part_rows: int = PART_ROWS) -> Verdict:
    """Evaluate the suite of an audit. Write its page and results if the audit has a place.

    Args:
        part_rows: See `evaluate`.

    Raises SettingsInvalid if a module cannot be imported, LakeDamaged if a file is missing or changed,
    LakeUnavailable if the store does not answer.

    Example::

        verdict = check(Audit("orders on emissions", suite, rows))
        verdict.stops  # whether a critical expectation is not met
    """
    # The import registers their types; the suite is evaluated with these by name.
    for module in audit.modules:
        _import(module)
    with provide_facts(audit.facts):
        evaluated = evaluate(audit.suite, audit.rows, audit.parameters, part_rows)
    verdict = Verdict(audit.title, tuple(map(_result, evaluated)))
    if audit.place is None:
        return verdict
    page = page_of(audit, evaluated, verdict)
    return replace(verdict, page=publish_page(audit.place, audit.suite.name, verdict, page))


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # the module is the user's: its code can raise anything
        raise SettingsInvalid(
            f"The module {module} of `quality` cannot be imported: {type(error).__name__}: {error}",
            "Install it where this Python finds it, or correct `modules`.",
        ) from error


def _result(evaluated: Evaluation) -> ExpectationResult:
    spec, raw = evaluated.measurement.spec, evaluated.result.result or {}
    share = raw.get("unexpected_percent")
    return ExpectationResult(
        number=spec.number,
        type=spec.type,
        columns=spec.columns,
        severity=spec.severity,
        passed=bool(evaluated.result.success),
        observed="" if evaluated.error else _observed(raw),
        rows=raw.get("element_count"),
        unexpected=raw.get("unexpected_count"),
        share=None if share is None else share / 100,
        failing=tuple(map(_row, raw.get("partial_unexpected_index_list") or ()))[:MOST_FAILING_ROWS],
        error=evaluated.error,
        note=evaluated.note,
    )


def _observed(raw: Mapping[str, Any]) -> str:
    """Return the observed value of an expectation that does not count rows, as a text."""
    if raw.get("observed_value") is not None:
        return _as_text(raw["observed_value"])
    if "element_count" in raw:
        return ""
    # expectations on distinct values return lists in place of `observed_value`
    lists = (("not in the set:", "partial_unexpected_list"), ("missing:", "partial_missing_list"))
    parts = [f"{what} {_as_text(raw[name])}" for what, name in lists if raw.get(name)]
    return "; ".join(parts)


def _row(row: Any) -> dict[str, str]:
    """A failing row, the key's columns first."""
    if not isinstance(row, Mapping):
        return {"row": str(row)}
    names = sorted(row, key=lambda name: name not in ("key", "window_start", "window_end"))
    return {str(name): _as_text(row[name]) for name in names}


def _as_text(value: Any) -> str:
    # numpy's scalars cannot be written as JSON
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, (list, tuple, set, frozenset)):
        plain = [item.item() if hasattr(item, "item") else item for item in plain]
    if isinstance(plain, str):
        return cut(plain)
    return cut(json.dumps(plain, ensure_ascii=False, default=str))
