"""The words of a Spark SQL expression, by Spark's own rules for quotes.

Spark runs the user's text, and not a parser's interpretation of it. So this module finds the called functions
in the text itself, and refuses a text that two parsers could split differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.model.mistakes import Fault

MAX_CHARACTERS = 20_000

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\r\n]+ )
    | (?P<string>  [rR]'[^']*' | [rR]"[^"]*"       # raw: a backslash means nothing
                 | [xX]'[^']*'
                 | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<quoted>  `(?:[^`]|``)*` )
    | (?P<comment> -- | /\* )
    | (?P<word>    [A-Za-z0-9_]+ )
    | (?P<symbol>  <=> | -> | [<>!=]= | => | <> | \|\| | << | >> | :: | [-+*/%&|^~!=<>()\[\],.] )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_UNUSABLE = {
    ";": ("`;` ends a statement", "Write one expression."),
    "?": ("`?` is a parameter", "Write the value itself."),
    "@": ("`@` is a variable", "Write the value itself."),
    "$": ("`$` is a variable", "Write the value itself."),
    "{": ("`{` does not belong into an expression", "Write the value itself."),
    "}": ("`}` does not belong into an expression", "Write the value itself."),
    ":": ("`:` is a parameter or reads a variant", "Use `struct.field`; in a type, `struct<name type>`."),
    "#": ("`#` does not belong into an expression", "Leave it out."),
}
_REFUSED_SYMBOLS = {
    "::": ("`::` is not used here", "Write `cast(x as type)`."),
    "=>": ("named arguments are not used here", "Write the arguments in their order."),
}
# Words that can precede a parenthesis without being a call.
_OPERATORS = (
    *("and", "or", "not", "in", "between", "like", "ilike", "rlike", "regexp", "escape"),
    *("is", "distinct", "from", "div", "case", "when", "then", "else", "over", "as"),
)


@dataclass(frozen=True)
class Word:
    """A word, symbol, quoted name or text in an expression, with its offsets in the expression.

    `kind` is a group of the pattern: `word`, `symbol`, `quoted` (in backticks) or `string`.
    """

    kind: str
    text: str
    start: int
    end: int

    def says(self, *texts: str) -> bool:
        """Return whether it is one of these words or symbols, which are in lower case.

        Case does not count.
        """
        return self.kind in ("word", "symbol") and self.text.lower() in texts


def split(text: str) -> tuple[list[Word], list[Fault]]:
    """Split an expression. Returns its words without blanks, and the faults; no words if it cannot be split.

    Example: the words of `sum(a + 1)` are `sum`, `(`, `a`, `+`, `1` and `)`.
    """
    if (fault := _unusable_whole(text)) is not None:
        return [], [fault]
    words: list[Word] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        # A comment could hide a part from one of the two parsers.
        if match is None or match.lastgroup == "comment":
            return [], [_unusable(text, at)]
        if match.lastgroup != "space":
            words.append(Word(str(match.lastgroup), match.group(), at, match.end()))
        at = match.end()
    faults = [Fault(*_REFUSED_SYMBOLS[word.text]) for word in words if word.text in _REFUSED_SYMBOLS]
    return words, faults


def _unusable_whole(text: str) -> Fault | None:
    if not text.strip():
        return Fault("the expression is empty", "Write a Spark SQL expression such as `quantity > 0`.")
    if len(text) > MAX_CHARACTERS:
        return Fault(f"the expression is longer than {MAX_CHARACTERS:,} characters", "Split it.")
    if "${" in text:
        # Spark substitutes settings and environment variables for it, even inside of quotes.
        return Fault("`${…}` would read Spark's settings or the environment", "Write the value itself.")
    if any("\ud800" <= c <= "\udfff" or c == "\0" for c in text):
        return Fault("the expression contains half of a character", "Write the character itself.")
    return None


def _unusable(text: str, at: int) -> Fault:
    """Return the fault because of which the text cannot be split at the offset `at`."""
    character = text[at]
    if text.startswith(("--", "/*"), at):
        return Fault("comments and hints are not allowed", "Put the comment above it, with `#`.")
    if character in "'\"`":
        return Fault(f"the quote {character} is never closed", "Close it, or put a backslash before it.")
    if character in _UNUSABLE:
        return Fault(*_UNUSABLE[character])
    return Fault(f"{character!r} cannot stand outside of quotes", "Put unusual column names into backticks.")


def string_value(literal: str) -> str:
    """Return the value of a literal in quotes, as Spark reads it.

    `\\%` and `\\_` stay unchanged, for LIKE.

    Example: the literal `'a\\tb'` has a tab between `a` and `b`.
    """
    if literal[0] in "rR":
        return literal[2:-1]
    read = unescaped(literal[1:-1])
    # Two surrogates, each written as an escape, are one character.
    return read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def unescaped(text: str) -> str:
    """Return a text with its escapes replaced, as Spark replaces them."""
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    short, long, octal, character = match.groups()
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else ""
    if octal:
        return chr(int(octal, 8))
    return match[0] if character in "%_" else _CONTROLS.get(character, character)


def types(words: list[Word]) -> list[range]:
    """Return the positions of the words of TYPE in each `cast(… as TYPE)`.

    Example: for the words of `cast(a as decimal(10,2))` the only range covers `decimal(10,2)`.
    """
    spans = []
    for at, word in enumerate(words[:-1]):
        if word.says("cast", "try_cast") and words[at + 1].says("("):
            start, end = _type_in(words, at + 2)
            spans.append(range(start, end))
    return spans


def _type_in(words: list[Word], at: int) -> tuple[int, int]:
    """Return the positions behind the `as` of a cast, and of its closing parenthesis."""
    depth, start = 1, len(words)
    for position in range(at, len(words)):
        word = words[position]
        depth += word.says("(", "[") - word.says(")", "]")
        # Only at the cast's own level: an inner cast has an `as` of its own.
        if depth == 1 and word.says("as") and start == len(words):
            start = position + 1
        if depth == 0:
            return min(start, position), position
    return len(words), len(words)


def calls(words: list[Word]) -> tuple[list[Word], list[Fault]]:
    """Return the names of called functions, outside of types, and faults for quoted or qualified names.

    Example: the names in `upper(a) || cast(b as string)` are `upper` and `cast`.
    """
    # `decimal(10,2)` in a cast looks like a call.
    in_types = {at for span in types(words) for at in span}
    names: list[Word] = []
    faults = []
    for at, word in enumerate(words[:-1]):
        if not words[at + 1].says("(") or at in in_types or word.kind not in ("word", "quoted"):
            continue
        if word.says(*_OPERATORS):
            continue
        # Such a name could be a function of a catalog, which the list of Spark's functions does not cover.
        if word.kind == "quoted" or (at and words[at - 1].says(".")):
            fix = "Write the function's plain name."
            faults.append(Fault(f"{word.text} is called by a quoted or qualified name", fix))
        names.append(word)
    return names, faults


def comma_in(words: Iterable[Word]) -> int | None:
    """Return the position of the first comma outside of brackets, between two arguments of a call; None if
    there is none.

    Example: it is 1 for the words of `a, b`, and None for those of `f(a, b)`.
    """
    depth = 0
    for at, word in enumerate(words):
        depth += word.says("(", "[") - word.says(")", "]")
        if depth == 0 and word.says(","):
            return at
    return None
