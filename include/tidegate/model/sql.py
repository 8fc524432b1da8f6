"""Expressions of pipeline files: Spark SQL over the columns of a single record, and nothing else.

An expression is a function of its record: it uses no other table or record, no clock, no random numbers, and
no code but Spark's own. It is accepted only if two readings agree. The words of the text (`lexis`) show which
functions are called; sqlglot's tree shows the parts, and every kind of part that is not known as harmless is
refused. Spark gets the user's text unchanged.

Spark checks whether types fit: its messages are better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import sqlglot.errors
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from tidegate.expressions.types import ColumnTypes, column_type, field_type
from tidegate.model import conversions, lexis
from tidegate.model.columns import BadType, parse_type
from tidegate.model.mistakes import Fault, did_you_mean, listed

CALLABLE = ("allowed", "grammar")
_HEAD = re.compile(r"\[(?P<group>\w+)\]\s*(?P<why>[^|]*?)\s*(?:\|\s*(?P<fix>.*))?")


@dataclass(frozen=True)
class Group:
    """Functions that are allowed, or refused for the same reason (`why`) and with the same fix."""

    name: str
    why: str
    fix: str


@lru_cache(maxsize=1)
def classified() -> dict[str, Group]:
    """Return the group of every function that `sql_functions.txt` lists, by its name in lower case."""
    result: dict[str, Group] = {}
    group: Group | None = None
    text = resources.files("tidegate.model").joinpath("sql_functions.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if head := _HEAD.fullmatch(line):
            group = Group(head["group"], head["why"], head["fix"] or "")
        elif group:
            result.update(dict.fromkeys(line.split(), group))
    return result


@lru_cache(maxsize=1)
def allowed() -> frozenset[str]:
    """Return the names of the functions that an expression may call, in lower case."""
    return frozenset(name for name, group in classified().items() if group.name in CALLABLE)


def refusal(name: str) -> Fault | None:
    """Return the fault of calling a function; None if an expression may call it.

    Example: `refusal("rand")` is a fault, `refusal("upper")` is None.
    """
    group = classified().get(name.lower())
    if group is None:
        # A function that the list lacks is refused: it may be newer than the list, or a user's own.
        fix = did_you_mean(name, allowed(), "Use one of Spark SQL's built-in functions.")
        return Fault(f"`{name}` is not a function of Spark 4.1", fix)
    if group.name in CALLABLE:
        return None
    return Fault(f"`{name}` {group.why}", group.fix)


class _Plain(SparkParser):
    """sqlglot's parser for Spark, which never renames or rewrites a function."""

    # Without these tables sqlglot leaves a call as a plain call, in the order of its arguments.
    FUNCTIONS = {}  # noqa: RUF012 (so declared by the base class)
    NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
    ARRAY_CONSTRUCTORS = {}  # noqa: RUF012
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: parser
        for name, parser in SparkParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "OVERLAY", "SUBSTRING")
    }
    NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
        name: parser for name, parser in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
    }


_HARMLESS = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.RawString, exp.HexString, exp.Boolean, exp.Null),
    *(exp.Paren, exp.Neg, exp.Not, exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot),
    *(exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.DPipe),
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Case, exp.If),
    *(exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Interval, exp.IntervalSpan),
    *(exp.Extract, exp.Trim, exp.StrPosition, exp.Overlay, exp.Substring, exp.Var),
    *(exp.Anonymous, exp.Lambda, exp.Bracket, exp.Dot, exp.Alias),
)
_CALLS = (exp.Anonymous, exp.Extract, exp.Trim, exp.StrPosition, exp.Overlay, exp.Substring)
_OTHER_TABLES = (exp.Query, exp.Table, exp.Values, exp.Exists)
_PLACES = ((exp.Column, None), (exp.Dot, "expression"), (exp.Lambda, "expressions"), (exp.Alias, "alias"))
_QUOTED = (
    *(TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.IDENTIFIER),
    *(TokenType.BIT_STRING, TokenType.BYTE_STRING, TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING),
    TokenType.HEREDOC_STRING,
)
_UNIT_FIRST = ("timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff")
_UNITS = (
    *("year", "quarter", "month", "week", "day", "dayofyear"),
    *("hour", "minute", "second", "millisecond", "microsecond"),
)


def check_expression(text: str, columns: ColumnTypes | None) -> list[Fault]:
    """Return all faults of an expression; an empty list if Spark may run it.

    Args:
        text: The expression.
        columns: The columns that it may name; None if they have mistakes, so that every name passes.

    Example: `check_expression("quantity > 0", {"quantity": INT})` returns `[]`.
    """
    words, faults = lexis.split(text)
    if not words:
        return faults
    names, qualified = lexis.calls(words)
    faults += [*qualified, *_types(text, words), *_refusals(names)]
    try:
        tree = _parse(text, words, names)
        return faults + _inside(tree, names, columns, constants_too=not faults)
    except (sqlglot.errors.SqlglotError, _Unclear) as error:
        # A function that is refused by name often does not parse either: one message is enough.
        return faults or [_unparsed(error)]
    except RecursionError:
        return [*faults, Fault("the expression is nested too deeply", "Split it.")]


def _refusals(names: list[lexis.Word]) -> Iterator[Fault]:
    for name in names:
        if name.kind == "word" and (fault := refusal(name.text)) is not None:
            yield fault


def _types(text: str, words: list[lexis.Word]) -> Iterator[Fault]:
    """Yield a fault for each cast to a type that Spark does not have."""
    for span in lexis.types(words):
        if not span:
            yield Fault("a cast has no type", "Write `cast(x as bigint)`.")
            continue
        try:
            parse_type(text[words[span[0]].start : words[span[-1]].end])
        except BadType as error:
            yield error.fault


# reading


class _Unclear(Exception):
    """Two readings of a text do not agree."""


def parse(text: str) -> exp.Expr:
    """Return sqlglot's tree of a checked expression, with literals as Spark reads them."""
    words, _ = lexis.split(text)
    return _parse(text, words, lexis.calls(words)[0], _decoded)


def _decoded(token: Token, text: str) -> Token:
    if token.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
        return token
    value = lexis.string_value(text[token.start : token.end + 1])
    return Token(TokenType.STRING, value, token.line, token.col, token.start, token.end)


def _parse(
    text: str,
    words: list[lexis.Word],
    names: list[lexis.Word],
    read: Callable[[Token, str], Token] = lambda token, _: token,
) -> exp.Expr:
    """Return the tree of a single expression, after applying `read` to each token.

    Raises _Unclear if it is ambiguous.
    """
    dialect = Spark()
    tokens = dialect.tokenize(text)
    spans = [(token.start, token.end + 1) for token in tokens if token.token_type in _QUOTED]
    # Both must see the same quotes: otherwise a function could hide in what one takes for a text.
    if spans != [(word.start, word.end) for word in words if word.kind in ("string", "quoted")]:
        raise _Unclear("it can be read in two ways")
    called = {name.start for name in names}
    trees = _Plain(dialect=dialect).parse([_plain(read(token, text), called) for token in tokens], text)
    if len(trees) != 1 or trees[0] is None:
        raise _Unclear("it is more than one expression")
    return trees[0]


def _plain(token: Token, called: set[int]) -> Token:
    """Return the token of a called function as a plain name, which starts no type, join or subquery."""
    if token.start not in called or token.token_type is TokenType.IDENTIFIER:
        return token
    return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)


def _unparsed(error: Exception) -> Fault:
    fix = "Write one Spark SQL expression, such as `quantity > 0`."
    if isinstance(error, sqlglot.errors.ParseError) and error.errors:
        near = str(error.errors[0].get("highlight") or "").strip()
        return Fault("it cannot be read" + (f", near `{near}`" if near else ""), fix)
    return Fault(str(error).partition("\n")[0] or "it cannot be read", fix)


def _inside(
    tree: exp.Expr, names: list[lexis.Word], columns: ColumnTypes | None, constants_too: bool
) -> list[Fault]:
    """Return the faults of the parts.

    Without `constants_too`, a call that is refused by name is not refused again.
    """
    nodes = list(tree.walk(bfs=False, prune=lambda node: isinstance(node, exp.DataType)))
    # A part that is not understood makes the further checks of columns meaningless.
    if faults := [fault for node in nodes for fault in _structure(node)]:
        return faults
    casts = sum(name.says("cast", "try_cast") for name in names)
    # Casts are nodes of their own; each other call in the text must be a call in the tree.
    if sum(isinstance(node, _CALLS) for node in nodes) != len(names) - casts:
        raise _Unclear("it can be read in two ways")
    column_faults = (_column(node, columns) for node in nodes if isinstance(node, exp.Column))
    return [*filter(None, column_faults), *(conversions.faults(tree, columns or {}) if constants_too else ())]


# structure


def _structure(node: exp.Expr) -> Iterator[Fault]:
    """Yield a fault for a part that an expression over a single record cannot have."""
    if isinstance(node, _OTHER_TABLES):
        yield Fault("it reads another table", "Use the columns of the record.")
    elif isinstance(node, exp.Star):
        yield Fault("`*` means many columns", "Name the column.")
    elif isinstance(node, exp.Window):
        yield Fault("`over` looks at other records", "Compute it from the record's own columns.")
    elif isinstance(node, exp.Alias) and not isinstance(node.parent, exp.Anonymous):
        yield Fault("it gives its result a name", "Write the name before the colon: `name: expression`.")
    elif isinstance(node, exp.Concat):
        yield Fault("there are two texts side by side", "Write one text, and a quote inside of it as \\'.")
    elif isinstance(node, exp.In) and node.args.get("field"):
        yield Fault("`in` needs a list in parentheses", "Write `x in (1, 2)`, or `array_contains(xs, x)`.")
    elif isinstance(node, exp.Anonymous) and _reads_clock(node):
        yield Fault("`unix_timestamp()` reads the machine's clock", "Give it the timestamp to convert.")
    elif not isinstance(node, _HARMLESS) or (isinstance(node, exp.Identifier) and not _placed(node)):
        what = type(node).__name__.lower()
        yield Fault(f"it uses what an expression cannot have ({what})", "Use columns, operators, functions.")


def _reads_clock(node: exp.Anonymous) -> bool:
    return str(node.this).lower() == "unix_timestamp" and not node.expressions


def _placed(node: exp.Identifier) -> bool:
    """Return whether an identifier is in a column's or field's name, or a lambda's variable."""
    parent = node.parent
    for kind, place in _PLACES:
        if isinstance(parent, kind) and place in (None, node.arg_key):
            return True
    # Lambdas nest, and an inner one sees the variables of all outer ones.
    enclosing = node.find_ancestor(exp.Lambda)
    while enclosing is not None:
        if any(variable.name.lower() == node.name.lower() for variable in enclosing.expressions):
            return True
        enclosing = enclosing.find_ancestor(exp.Lambda)
    return False


# columns


def _column(node: exp.Column, columns: ColumnTypes | None) -> Fault | None:
    """Return the fault of a column or field that does not exist; None if it exists."""
    path = path_of(node)
    if columns is None or _is_unit(node):
        return None
    if path[0].lower() not in {name.lower() for name in columns}:
        return _unknown_column(path[0], columns)
    for size in range(2, len(path) + 1):
        outer = column_type(path[: size - 1], columns)[1]
        if outer is not None and field_type(outer, path[size - 1]) is None:
            name = path[size - 1]
            fix = did_you_mean(name, [field for field, _ in outer.fields], f"It is {outer.text}.")
            return Fault(f"`{'.'.join(path[: size - 1])}` has no field `{name}`", fix)
    return None


def path_of(node: exp.Column) -> list[str]:
    """Return the names of `a.b.c` as a list, for any depth."""
    path = [part.name for part in node.parts]
    outer: exp.Expr = node
    while isinstance(outer.parent, exp.Dot) and outer.arg_key == "this":
        outer = outer.parent
        path.append(outer.expression.name)
    return path


def _is_unit(node: exp.Column) -> bool:
    """Return whether a node is a unit of time, as `day` in `timestampadd(day, 1, at)`."""
    call = node.parent
    return (
        isinstance(call, exp.Anonymous)
        and str(call.this).lower() in _UNIT_FIRST
        and len(call.expressions) == 3
        and call.expressions[0] is node
        and node.name.lower() in _UNITS
    )


def _unknown_column(name: str, columns: ColumnTypes) -> Fault:
    group = classified().get(name.lower())
    if group and group.name in ("clock", "environment"):
        return Fault(f"`{name}` {group.why}", group.fix)
    none = "There are no columns yet: correct their own mistakes first."
    fix = did_you_mean(name, columns, f"The columns are {listed(columns)}." if columns else none)
    return Fault(f"the column `{name}` does not exist", fix)
