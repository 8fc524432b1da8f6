"""docs/how-do-i.md: forty questions, each with a link to a section that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pymdownx.slugs import slugify

DOCS = Path(__file__).resolve().parents[2] / "docs"
QUESTIONS = re.findall(r"^- (.+)$", (DOCS / "how-do-i.md").read_text(), re.MULTILINE)


def sections(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    slug = slugify(case="lower")
    return {slug(heading.replace("`", ""), "-") for heading in headings}


def test_the_page_has_forty_questions() -> None:
    assert len(QUESTIONS) >= 40


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_leads_to_a_section(question: str) -> None:
    links = re.findall(r"\? \[[^]]+\]\(([^)#]+)(?:#([^)]+))?\)$", question)
    assert len(links) == 1, "one line is a question and its link"
    ((page, section),) = links
    assert not section or section in sections(DOCS / page)
