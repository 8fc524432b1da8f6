"""`scripts/words.py` finds the words that a new reader does not understand."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.words import places_of


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("x = 1\nfound = 2\n", 2, "private name found"),
        ("def f(of: int) -> None: ...\n", 1, "private name of"),
        ("class _Known: ...\n", 1, "private name _Known"),
        ('def f() -> None:\n    """Of each check."""\n', 1, "begins with a fragment"),
        ("def test_it() -> None: ...\n", 1, "4 to 8 words, this one 1"),
        ("x = 'A file that is gone.'\n", 1, "forbidden phrase 'is gone'"),
        ("x = 1\n# what a sink knows of it\n", 2, "forbidden phrase 'knows of'"),
        ('def f() -> None:\n    """Return what the page\n    lets\n    out."""\n', 3, "lets\\n    out"),
    ],
)
def test_each_kind_of_problem_is_reported(tmp_path: Path, text: str, line: int, problem: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(text)
    (place,) = places_of(file)
    assert place.startswith(f"{file}:{line}: ")
    assert problem in place


def test_a_phrase_of_a_page_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nThe gate lets\nout what changed.\n")
    assert [place.split(": ")[0] for place in places_of(page)] == [f"{page}:3"]


def test_plain_words_pass_the_check(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        'def outlets(record: int) -> int:\n    """Return the emissions of a record."""\n    return record\n'
    )
    assert list(places_of(file)) == []
