"""Expressions of pipeline files: Spark SQL over the columns of one record, and nothing else.

An expression is a function of its record: no other table, no other record, no clock, no chance, no code
but Spark's own. Two readings have to agree before one is accepted. The text's words (`lexis`) say which
functions are called; sqlglot's tree says what the parts are, and every kind of part that is not known to
be harmless is refused. What Spark gets is the user's text, unchanged.

Whether types fit is left to Spark, which says it better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sqlglot.errors
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from tidegate.spec import constants, lexis
from tidegate.spec.columns import ANY, BadType, Type, parse_type
from tidegate.spec.constants import Known
from tidegate.spec.functions import classified, refusal
from tidegate.spec.mistakes import Fault, did_you_mean, listed


class _Plain(SparkParser):
    """Spark's grammar, in which a call stays a call: no function is renamed, rewritten or guessed."""

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


def check_expression(text: str, columns: Known | None) -> list[Fault]:
    """All that is wrong with one expression; empty when Spark may run it.

    `columns` are those that it may name; None when they could not be read (then any name will do).
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
        # what is refused by name often does not parse either: that would say the same twice
        return faults or [_unparsed(error)]
    except RecursionError:
        return [*faults, Fault("the expression is nested too deeply", "Split it.")]


def _refusals(names: list[lexis.Word]) -> Iterator[Fault]:
    for name in names:
        if name.kind == "word" and (fault := refusal(name.text)) is not None:
            yield fault


def _types(text: str, words: list[lexis.Word]) -> Iterator[Fault]:
    """The types that values are cast to have to be Spark's."""
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
    """Two readers do not agree on what the text says."""


def parse(text: str) -> exp.Expr:
    """The tree of an expression that `check_expression` accepts. Its texts are what Spark makes of them."""
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
    """The tree of the one expression, each of whose tokens is `read`."""
    dialect = Spark()
    tokens = dialect.tokenize(text)
    spans = [(token.start, token.end + 1) for token in tokens if token.token_type in _QUOTED]
    if spans != [(word.start, word.end) for word in words if word.kind in ("string", "quoted")]:
        raise _Unclear("it can be read in two ways")
    called = {name.start for name in names}
    trees = _Plain(dialect=dialect).parse([_plain(read(token, text), called) for token in tokens], text)
    if len(trees) != 1 or trees[0] is None:
        raise _Unclear("it is more than one expression")
    return trees[0]


def _plain(token: Token, called: set[int]) -> Token:
    """A name that is called is a name, even if it could also start a type, a join or a subquery."""
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
    tree: exp.Expr, names: list[lexis.Word], columns: Known | None, constants_too: bool
) -> list[Fault]:
    """What is wrong with the parts. A call that is refused by name is not refused again as a constant."""
    nodes = list(tree.walk(bfs=False, prune=lambda node: isinstance(node, exp.DataType)))
    if faults := [fault for node in nodes for fault in _structure(node)]:
        return faults
    casts = sum(name.says("cast", "try_cast") for name in names)
    if sum(isinstance(node, _CALLS) for node in nodes) != len(names) - casts:
        raise _Unclear("it can be read in two ways")
    column_faults = (_column(node, columns) for node in nodes if isinstance(node, exp.Column))
    return [*filter(None, column_faults), *(constants.faults(tree, columns or {}) if constants_too else ())]


# structure


def _structure(node: exp.Expr) -> Iterator[Fault]:
    """What is never part of an expression over one record."""
    if isinstance(node, _OTHER_TABLES):
        yield Fault("it reads another table", "Use the columns of the record.")
    elif isinstance(node, exp.Star):
        yield Fault("`*` stands for many columns", "Name the column.")
    elif isinstance(node, exp.Window):
        yield Fault("`over` looks at other records", "Compute it from the record's own columns.")
    elif isinstance(node, exp.Alias) and not isinstance(node.parent, exp.Anonymous):
        yield Fault("it gives its result a name", "The name stands before the colon: `name: expression`.")
    elif isinstance(node, exp.Concat):
        yield Fault("two texts stand side by side", "Write one text, and a quote inside of it as \\'.")
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
    """Part of a column's or field's name, or a variable of a lambda around it."""
    parent = node.parent
    for kind, place in _PLACES:
        if isinstance(parent, kind) and place in (None, node.arg_key):
            return True
    enclosing = node.find_ancestor(exp.Lambda)
    while enclosing is not None:
        if any(variable.name.lower() == node.name.lower() for variable in enclosing.expressions):
            return True
        enclosing = enclosing.find_ancestor(exp.Lambda)
    return False


# columns


def _column(node: exp.Column, columns: Known | None) -> Fault | None:
    """The column must be known, and so must the fields that are taken out of it."""
    path = path_of(node)
    if columns is None or _is_unit(node):
        return None
    if path[0].lower() not in {name.lower() for name in columns}:
        return _unknown_column(path[0], columns)
    for size in range(2, len(path) + 1):
        outer = column_type(path[: size - 1], columns)[1]
        if outer is not None and _field(outer, path[size - 1]) is None:
            name = path[size - 1]
            fix = did_you_mean(name, [field for field, _ in outer.fields], f"It is {outer.text}.")
            return Fault(f"`{'.'.join(path[: size - 1])}` has no field `{name}`", fix)
    return None


def column_type(path: list[str], columns: Known | None) -> tuple[list[str], Type | None]:
    """A column or field that exists: its name as it was declared, and its type where that is known."""
    declared = {name.lower(): name for name in columns or ()}
    name = declared.get(path[0].lower(), path[0])
    names, type_ = [name], columns.get(name) if columns else None
    for field in path[1:]:
        fields = {field_name.lower(): field_name for field_name, _ in type_.fields} if type_ else {}
        names.append(fields.get(field.lower(), field))
        type_ = _field(type_, field) if type_ else None
    return names, type_


def path_of(node: exp.Column) -> list[str]:
    """`a.b.c` as a list, however deep."""
    path = [part.name for part in node.parts]
    outer: exp.Expr = node
    while isinstance(outer.parent, exp.Dot) and outer.arg_key == "this":
        outer = outer.parent
        path.append(outer.expression.name)
    return path


def _field(type_: Type, name: str) -> Type | None:
    """What `.name` gives: of an array, the field of each element; of a map, the value."""
    if type_.kind == ANY.kind:
        return ANY
    if type_.kind == "map":
        return type_.parts[1]
    if type_.kind == "array":
        inner = _field(type_.parts[0], name)
        return inner and Type(f"array<{inner.text}>", "array", parts=(inner,))
    return next((inner for field, inner in type_.fields if field.lower() == name.lower()), None)


def _is_unit(node: exp.Column) -> bool:
    """The `day` of `timestampadd(day, 1, at)`."""
    call = node.parent
    return (
        isinstance(call, exp.Anonymous)
        and str(call.this).lower() in _UNIT_FIRST
        and len(call.expressions) == 3
        and call.expressions[0] is node
        and node.name.lower() in _UNITS
    )


def _unknown_column(name: str, columns: Known) -> Fault:
    group = classified().get(name.lower())
    if group and group.name in ("clock", "environment"):
        return Fault(f"`{name}` {group.why}", group.fix)
    none = "There are no columns yet: correct those that it is made of first."
    fix = did_you_mean(name, columns, f"The columns are {listed(columns)}." if columns else none)
    return Fault(f"the column `{name}` does not exist", fix)
