"""Find words that a new reader does not understand: `python -m scripts.words [PATH...]`.

Without a path it reads all of `CHECKED`.
It prints a line for each place, and exits with 1 if there is one:

- a private name (`known`, `each`, `found`) as a variable, parameter, function or class,
- a docstring that begins with a fragment ("Of each check.", "What a task writes."),
- a test whose name does not have 4 to 8 words,
- a phrase of docs/phrases.md in a docstring, a comment, a message or a page.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKED = (
    "CHANGELOG.md",
    "README.md",
    "benchmarks",
    "dags",
    "docs",
    "include",
    "plugins",
    "scripts",
    "spark_jobs",
    "tests",
    "tidegate-dev",
)
"""Paths, relative to the repository, in which each of these words is a mistake."""

PRIVATE_NAMES = frozenset(
    {"each", "found", "gone", "held", "its", "kept", "known", "mine", "of", "one", "others", "said"}
    | {"there", "told", "wanted", "whose"}
)
_FRAGMENT = re.compile(
    r"(Of|What|Who|Whose|Which|The same|The others|Those|That|As|For|With|Without|Where|When|How|Why|So|All|"
    r"See|Not|Such|By|In|On|From|Only|To)\b"
)
_TEST_WORDS = range(4, 9)
_QUOTING = frozenset({"phrases.md", "test_words.py"})
"""The list of the phrases, and the test of this program, which quote them."""
_OF_AIRFLOW = frozenset({"test_connection"})
"""Methods that Airflow calls by this name, which are not tests."""
_TEXT_TOKENS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


def main(arguments: list[str]) -> int:
    """Print all places below the given paths. Returns the exit code."""
    paths = [Path(argument) for argument in arguments] or [ROOT / path for path in CHECKED]
    places = [place for path in paths for file in _files(path) for place in places_of(file)]
    for place in places:
        print(place)
    return 1 if places else 0


def places_of(file: Path) -> Iterator[str]:
    """Yield `file:line: what is wrong` for each place in a Python file or a page."""
    if file.name in _QUOTING:
        return
    text = file.read_text(encoding="utf-8")
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    problems = _python(text) if file.suffix == ".py" else _phrases([(1, text)])
    for line, problem in problems:
        yield f"{name}:{line}: {problem}"


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for suffix in ("py", "md"):
        yield from sorted(file for file in path.rglob(f"*.{suffix}") if ".venv" not in file.parts)


def _python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        yield from _names(node)
        yield from _docstring(node)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from _phrases((token.start[0], token.string) for token in tokens if token.type in _TEXT_TOKENS)


def _names(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield from _name(name, node.lineno)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield from _name(name, node.lineno)
            words = name.removeprefix("test_").split("_")
            if name.startswith("test_") and name not in _OF_AIRFLOW and len(words) not in _TEST_WORDS:
                yield node.lineno, f"a test's name has 4 to 8 words, this one {len(words)}: {name}"


def _name(name: str, line: int) -> Iterator[tuple[int, str]]:
    if name.strip("_").lower() in PRIVATE_NAMES:
        yield line, f"private name {name}: use the noun of Kafka, Spark, Airflow or the glossary"


def _docstring(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        text = ast.get_docstring(node)
        if text and _FRAGMENT.match(text):
            yield node.lineno, f"a docstring begins with a fragment: {text.splitlines()[0][:60]!r}"


def _phrases(texts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for line, text in texts:
        for match in _FORBIDDEN.finditer(text):
            at = line + text.count("\n", 0, match.start())
            yield at, f"forbidden phrase {match.group()!r}: see docs/phrases.md"


def _forbidden() -> re.Pattern[str]:
    """Return a pattern of the first column of docs/phrases.md; a space also matches a line break."""
    rows = re.findall(r"^\| (.+?) \|", (ROOT / "docs" / "phrases.md").read_text(), re.MULTILINE)
    phrases = (r"[\s\"#]+".join(map(re.escape, row.split())) for row in rows if row != "not")
    return re.compile(rf"\b({'|'.join(phrases)})\b", re.IGNORECASE)


_FORBIDDEN = _forbidden()

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
