"""The page of a check, as Great Expectations renders it, without what it would load from elsewhere.

Around its sections stands a page of ours: theirs has scripts and styles of six other hosts, and a copy of
four megabytes beside it. Compiled templates are not kept on disk, where another user could put code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache
from html import escape
from typing import Any

from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, DictLoader

from tidegate.quality.audit import Audit, PagePlace
from tidegate.quality.evaluate import Evaluation
from tidegate.quality.expectations import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
    gx,
)
from tidegate.quality.site import CSP, STYLE, outcome_of
from tidegate.quality.verdict import ExpectationResult, Verdict

_SUITE_LINK = re.compile(r'<a href="[^"]*/expectations/[^"]*"\s*>(.*?)</a>', re.DOTALL)
"""To the page of the suite, which there is none of: the suite is a file of the project."""
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8">CSP<title>{{ page_title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="../../../static/STYLE"></head>
<body>
<p><a href="index.html">up</a></p>
<h1>{{ page_title | e }}</h1>
{% for result in unreadable %}
<p>{{ result.title | e }}: {{ (result.error or result.observed) | e }}</p>
{% endfor %}
{% for section in sections %}{% set section_loop = loop %}{% include 'section.j2' %}{% endfor %}
</body>
</html>
""".replace("STYLE", STYLE).replace("CSP", CSP)


class Page(DefaultJinjaPageView):  # type: ignore[misc]  # Great Expectations is not typed
    """A page of a validation."""

    def __init__(self) -> None:
        super().__init__()
        self.env.loader = ChoiceLoader([DictLoader({"page.j2": _PAGE}), self.env.loader])


def page_of(audit: Audit, evaluated: Sequence[Evaluation], verdict: Verdict) -> str:
    """The page's HTML. Expectations that their classes do not take stand above what can be rendered."""
    place = audit.place
    assert place is not None, "only where a page is written"
    both = list(zip(evaluated, verdict.expectations, strict=True))
    results = [_plain(each, result) for each, result in both if each.measurement.is_readable]
    unreadable = [result for each, result in both if not each.measurement.is_readable]
    met = sum(bool(result.success) for result in results)
    whole = ExpectationSuiteValidationResult(
        results=results,
        success=verdict.passed,
        suite_name=audit.suite.name,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": met,
            "unsuccessful_expectations": len(results) - met,
            "success_percent": met / len(results) * 100 if results else None,
        },
        meta={
            "great_expectations_version": gx.__version__,
            "run_id": RunIdentifier(run_name=_run_name(place), run_time=_midnight(place)),
            "batch_spec": {"data_asset_name": audit.title},
        },
    )
    document = ValidationResultsPageRenderer().render(whole)
    document.page_title = f"{_run_name(place)}: {outcome_of(verdict)}"
    html: str = _view().render(document, unreadable=unreadable)
    return _SUITE_LINK.sub(r"\1", html)


def _plain(evaluated: Evaluation, result: ExpectationResult) -> ExpectationValidationResult:
    """A result with values as JSON has them. What counts distinct values, not rows, tells them in words: its
    own renderer takes them for rows.
    """
    raw = _as_json(dict(evaluated.result.result or {}))
    if "unexpected_count" in raw and "element_count" not in raw:
        raw = {"observed_value": result.observed or "as expected"}
    return ExpectationValidationResult(
        success=result.passed,
        expectation_config=evaluated.result.expectation_config,
        result=_escaped(raw),
        exception_info=_escaped(_as_json(evaluated.result.exception_info)),
    )


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_plain_value))


def _escaped(value: Any) -> Any:
    """Return what records hold as HTML text: Great Expectations puts values into its pages as they are."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def _plain_value(value: Any) -> Any:
    """NumPy's numbers are of no class that JSON knows; times and the like are texts."""
    return value.item() if hasattr(value, "item") else str(value)


def _run_name(place: PagePlace) -> str:
    return (
        f"{place.pipeline}/{place.generation} batch {place.seq}, check {place.number}, try {place.try_number}"
    )


def _midnight(place: PagePlace) -> datetime:
    return datetime(place.day.year, place.day.month, place.day.day, tzinfo=timezone.utc)


@lru_cache
def _view() -> Page:
    return Page()
