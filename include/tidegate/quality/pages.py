"""Render the page of a check with Great Expectations, without what it would load from other hosts.

tidegate writes the page around the rendered sections: Great Expectations' own page loads scripts and styles
from six hosts, and needs four megabytes of files beside it. Compiled templates are never stored on disk,
where another user could change them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, DictLoader

from tidegate.quality.audit import Audit, PagePlace
from tidegate.quality.expectations import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
    gx,
)
from tidegate.quality.site import CSP, STYLE, outcome_of
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import ExpectationResult, Verdict

if TYPE_CHECKING:
    from tidegate.quality.gate import Evaluation

_SUITE_LINK = re.compile(r'<a href="[^"]*/expectations/[^"]*"\s*>(.*?)</a>', re.DOTALL)
"""The link to the suite's page. There is no such page: the suite is a file of the project."""
_STYLE_ATTRIBUTE = re.compile(r' style="[^"]*"')
"""Styles in attributes, which the page's policy does not allow: the style sheet has what is needed."""
_OUTCOMES = {
    None: "passed",
    Severity.CRITICAL: "stopped",
    Severity.WARNING: "warned",
    Severity.INFO: "noted",
}
"""Severity of an expectation that is not met (None: it is met) -> the outcome, as indexes name it."""
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8">CSP<title>{{ page_title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="../../../static/STYLE"></head>
<body>
<p><a href="index.html">up</a></p>
<h1>{{ page_title | e }}</h1>
<table class="severities"><caption>Expectations by severity</caption>
<thead><tr><th>severity</th><th>expectation</th><th>columns</th><th>outcome</th></tr></thead>
<tbody>
{% for severity, type, columns, outcome in severities %}
<tr><td>{{ severity | e }}</td><td>{{ type | e }}</td><td>{{ columns | e }}</td>
<td class="{{ outcome | e }}">{{ outcome | e }}</td></tr>
{% endfor %}
</tbody></table>
{% for result in unreadable %}
<p>{{ result.title | e }}: {{ (result.error or result.observed) | e }}</p>
{% endfor %}
{% for section in sections %}{% set section_loop = loop %}{% include 'section.j2' %}{% endfor %}
</body>
</html>
""".replace("STYLE", STYLE).replace("CSP", CSP)


class Page(DefaultJinjaPageView):  # type: ignore[misc]  # Great Expectations is not typed
    """The page of a validation."""

    def __init__(self) -> None:
        super().__init__()
        # Only the frame of the page is replaced; sections come from Great Expectations' own templates.
        self.env.loader = ChoiceLoader([DictLoader({"page.j2": _PAGE}), self.env.loader])


def compile_templates() -> None:
    """Compile the templates of pages, which otherwise happens when the first page of a process is made."""
    environment = _view().env
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)


def page_of(audit: Audit, evaluated: Sequence[Evaluation], verdict: Verdict) -> str:
    """Return the page's HTML.

    Expectations whose arguments their class does not accept cannot be rendered; they are listed at the top.

    Args:
        evaluated: The evaluations, in the order of the expectations of `verdict`.
    """
    place = audit.place
    assert place is not None, "the audit has no place for a page"
    evaluations = list(zip(evaluated, verdict.expectations, strict=True))
    results = [
        _plain(evaluation, result) for evaluation, result in evaluations if evaluation.measurement.is_readable
    ]
    unreadable = [result for tested, result in evaluations if not tested.measurement.is_readable]
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
            # The day of the batch's clock, whenever the check runs: the page is filed under that day.
            "run_id": RunIdentifier(run_name=_run_name(place), run_time=_midnight(place)),
            "batch_spec": {"data_asset_name": audit.title},
        },
    )
    document = ValidationResultsPageRenderer().render(whole)
    document.page_title = f"{_run_name(place)}: {outcome_of(verdict)}"
    html: str = _view().render(document, unreadable=unreadable, severities=_severities(verdict))
    return _STYLE_ATTRIBUTE.sub("", _SUITE_LINK.sub(r"\1", html))


def _severities(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """Return severity, type, columns and outcome of each expectation, failed ones first, then by severity.

    Great Expectations' own templates do not show the severity.
    """
    order = list(Severity)
    results = sorted(verdict.expectations, key=lambda result: (result.passed, order.index(result.severity)))
    return [
        (
            result.severity.value,
            result.type,
            ", ".join(result.columns),
            _OUTCOMES[None if result.passed else result.severity],
        )
        for result in results
    ]


def _plain(evaluated: Evaluation, result: ExpectationResult) -> ExpectationValidationResult:
    """Return a result whose values JSON can store."""
    raw = _as_json(dict(evaluated.result.result or {}))
    # counts distinct values, not rows; the renderer would show the number as a number of rows
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
    """Return the values as HTML text: Great Expectations inserts values of records into its pages
    unescaped.
    """
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def _plain_value(value: Any) -> Any:
    """Return a number of NumPy as Python's, and any other value, such as a time, as text."""
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
