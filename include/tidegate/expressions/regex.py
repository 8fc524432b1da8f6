"""Regular expressions with the same meaning in Java, which Spark uses, and in Python; others are refused."""

from __future__ import annotations

import re

_LINE_END = r"\n\r\u0085\u2028\u2029"
_ANY = f"[^{_LINE_END}]"
_END = rf"(?!(?<=\r)\n)(?=(?:\r\n|[{_LINE_END}])?\Z)"
"""Java's `$`: the end, or the position before a line's last end, which may be of two characters."""

_PARTS = re.compile(
    r"""
      (?P<class>      \[\^? (?: [^\\\[\]^&-] | \\[dDwWsStnrf\\\[\]^.$*+?{}()|/-] )
                            (?: [^\\\[\]&-] | - (?! \] ) | \\[dDwWsStnrf\\\[\]^.$*+?{}()|/-] )* \] )
    | (?P<escape>     \\[dDwWsStnrf\\\[\]^.$*+?{}()|/-] )
    | (?P<repeat>     (?: [*+?] | \{[0-9]{1,4}(?:,[0-9]{0,4})?\} ) \?? (?! [*+?{] ) )
    | (?P<group>      \( (?: \?: | (?! \? ) ) )
    | (?P<mark>       [)|^] )
    | (?P<any>        \. )
    | (?P<end>        \$ )
    | (?P<plain>      [^\\\[\](){}.*+?^$|] )
    """,
    re.VERBOSE | re.DOTALL,
)


def java_pattern(pattern: str) -> re.Pattern[str]:
    """Return the expression for `search`. Raises ValueError, which says where Java and Python differ.

    Example: `a.c` does not match when a line end is between `a` and `c`, as in Java.
    """
    at, translated = 0, []
    while at < len(pattern):
        part = _PARTS.match(pattern, at)
        if part is None:
            raise ValueError(f"a pattern here cannot have what begins at `{pattern[at:][:10]}`")
        translated.append({"any": _ANY, "end": _END}.get(part.lastgroup or "", part.group()))
        at = part.end()
    try:
        # Java's \d, \w and \s are ASCII; Python's are not without this flag
        return re.compile("".join(translated), re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"the pattern cannot be read: {error}") from None
