"""A dialect of sqlglot for ksqlDB's statements: what ksqlDB adds to SQL, as nodes of sqlglot's tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from sqlglot import ParseError, Token, TokenType, exp, tokens
from sqlglot import Parser as SqlParser
from sqlglot.dialects.dialect import Dialect

_NO_ALIAS = {"WINDOW", "WITHIN", "PARTITION", "EMIT", "ON", "JOIN", "INNER", "LEFT", "RIGHT", "FULL"} | {
    *("OUTER", "WHERE", "GROUP", "HAVING", "LIMIT", "TUMBLING", "HOPPING", "SESSION", "SIZE")
}


_CLAUSES = {"replaces": False, "if_missing": False}
"""OR REPLACE and IF NOT EXISTS."""


class CreateSource(exp.Expression):
    """CREATE STREAM or TABLE over a topic: `this` is the name, `kind` STREAM or TABLE."""

    arg_types: ClassVar = {"this": True, "kind": True, "columns": False, "options": False} | _CLAUSES


class CreateAs(exp.Expression):
    """CREATE STREAM or TABLE … AS SELECT."""

    arg_types: ClassVar = {"this": True, "kind": True, "query": True, "options": False} | _CLAUSES


class InsertAs(exp.Expression):
    """INSERT INTO … SELECT."""

    arg_types: ClassVar = {"this": True, "query": True}


class InsertValues(exp.Expression):
    """INSERT INTO … VALUES: `columns` are names, `expressions` values."""

    arg_types: ClassVar = {"this": True, "columns": False, "expressions": True}


class Alter(exp.Expression):
    """ALTER STREAM or TABLE … ADD: `columns` are the new ones."""

    arg_types: ClassVar = {"this": True, "columns": True}


class Drop(exp.Expression):
    """DROP STREAM or TABLE."""

    arg_types: ClassVar = {"this": True}


class SetProperty(exp.Expression):
    """SET 'name'='value', or UNSET 'name', which has no expression."""

    arg_types: ClassVar = {"this": True, "expression": False}


class ColumnDefinition(exp.Expression):
    """A column of CREATE: `kind` is its type, `role` KEY, PRIMARY KEY, HEADERS or nothing."""

    arg_types: ClassVar = {"this": True, "kind": True, "role": False}


class WithOption(exp.Expression):
    """`NAME = value` of a WITH clause."""

    arg_types: ClassVar = {"this": True, "expression": True}


class RelationName(exp.Expression):
    """A stream or a table that a query reads, with its alias."""

    arg_types: ClassVar = {"this": True, "alias": False}


class KsqlJoin(exp.Expression):
    """A join: `side` INNER, LEFT, RIGHT or FULL; `before`, `after` and `grace` are durations in ms."""

    arg_types: ClassVar = {
        "this": True,
        "side": True,
        "on": True,
        "before": False,
        "after": False,
        "grace": False,
    }


class KsqlWindow(exp.Expression):
    """A window: `kind` TUMBLING, HOPPING or SESSION, and durations in ms."""

    arg_types: ClassVar = {"kind": True, "size": True, "advance": False, "grace": False, "retention": False}


class Query(exp.Expression):
    """A SELECT of ksqlDB."""

    arg_types: ClassVar = {
        "expressions": True,
        "this": True,
        "window": False,
        "joins": False,
        "where": False,
        "group": False,
        "partition": False,
        "having": False,
        "emit": False,
        "limit": False,
    }


_UNITS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


class Ksql(Dialect):
    """ksqlDB's SQL."""

    class Tokenizer(tokens.Tokenizer):
        """Backticks and double quotes enclose names."""

        IDENTIFIERS: ClassVar = ["`", '"']
        QUOTES: ClassVar = ["'"]
        STRING_ESCAPES: ClassVar = ["'"]
        VAR_SINGLE_TOKENS: ClassVar = {"@"}
        KEYWORDS: ClassVar = {**tokens.Tokenizer.KEYWORDS, "BYTES": TokenType.VARBINARY}

    class Parser(SqlParser):
        """Parses one statement of ksqlDB. All functions are `exp.Anonymous`, so none is taken for another."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {"CAST": SqlParser.FUNCTION_PARSERS["CAST"]}
        NO_PAREN_FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SqlParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        LAMBDAS: ClassVar = {TokenType.FARROW: SqlParser.LAMBDAS[TokenType.ARROW]}
        COLUMN_OPERATORS: ClassVar = {
            TokenType.DOT: None,
            TokenType.ARROW: lambda self, this, field: self.expression(exp.Dot(this=this, expression=field)),
        }

        def _parse_statement(self) -> Any:
            if self._match_text_seq("CREATE"):
                return self._parse_ksql_create()
            if self._match_text_seq("INSERT", "INTO"):
                return self._parse_ksql_insert()
            if self._match_text_seq("SET"):
                name = self._parse_string()
                self._match(TokenType.EQ)
                return self.expression(SetProperty(this=name, expression=self._parse_string()))
            if self._match_text_seq("UNSET"):
                return self.expression(SetProperty(this=self._parse_string()))
            start = self._index
            if self._match_text_seq("ALTER") and self._is_relation():
                name, columns = self._parse_id_var(), self._parse_csv(self._parse_ksql_addition)
                return self.expression(Alter(this=name, columns=columns))
            self._retreat(start)
            if self._match_text_seq("DROP") and self._is_relation():
                self._match_text_seq("IF", "EXISTS")
                name = self._parse_id_var()
                self._match_text_seq("DELETE", "TOPIC")
                return self.expression(Drop(this=name))
            self._retreat(start)
            return self._rest()

        def _is_relation(self) -> bool:
            return bool(self._match_text_seq("STREAM") or self._match_text_seq("TABLE"))

        def _parse_ksql_addition(self) -> Any:
            if not self._match_text_seq("ADD"):
                self.raise_error("Expected ADD")
            self._match_text_seq("COLUMN")
            return self._parse_ksql_column()

        def _rest(self) -> exp.Command:
            """Return the statement as a command, which names what it begins with."""
            words = []
            while self._curr:
                words.append(self._curr.text)
                self._advance()
            return exp.Command(this=" ".join(words[:2]).upper())

        def _parse_ksql_create(self) -> Any:
            start = self._index
            clauses = {"replaces": bool(self._match_text_seq("OR", "REPLACE"))}
            self._match_text_seq("SOURCE")
            if not self._is_relation():
                self._retreat(start - 1)
                return self._rest()
            kind = self._prev.text.upper()
            clauses["if_missing"] = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
            name = self._parse_id_var()
            columns = None
            if self._match(TokenType.L_PAREN):
                columns = self._parse_csv(self._parse_ksql_column)
                self._match_r_paren()
            options = self._parse_ksql_options()
            if self._match(TokenType.ALIAS):
                query = self._parse_ksql_query()
                return self.expression(
                    CreateAs(this=name, kind=kind, query=query, options=options, **clauses)
                )
            return self.expression(
                CreateSource(this=name, kind=kind, columns=columns, options=options, **clauses)
            )

        def _parse_ksql_column(self) -> Any:
            name, kind, role = self._parse_id_var(), self._parse_types(schema=True), ""
            if self._match(TokenType.PRIMARY_KEY) or self._match_text_seq("PRIMARY", "KEY"):
                role = "PRIMARY KEY"
            elif self._match_text_seq("KEY"):
                role = "KEY"
            elif self._match_text_seq("HEADERS"):
                role = "HEADERS"
            elif self._match_text_seq("HEADER"):
                self._parse_wrapped(self._parse_string)
                role = "HEADER"
            return self.expression(ColumnDefinition(this=name, kind=kind, role=role))

        def _parse_ksql_options(self) -> Any:
            if not self._match(TokenType.WITH):
                return []
            self._match_l_paren()
            options = self._parse_csv(self._parse_ksql_option) if not self._match(TokenType.R_PAREN) else []
            if options:
                self._match_r_paren()
            return options

        def _parse_ksql_option(self) -> Any:
            name = self._curr.text.upper()
            self._advance()
            self._match(TokenType.EQ)
            return self.expression(WithOption(this=name, expression=self._parse_unary()))

        def _parse_ksql_insert(self) -> Any:
            name = self._parse_id_var()
            columns = None
            if self._match(TokenType.L_PAREN):
                columns = self._parse_csv(self._parse_id_var)
                self._match_r_paren()
            if self._match(TokenType.VALUES):
                values = self._parse_wrapped_csv(self._parse_expression)
                return self.expression(InsertValues(this=name, columns=columns, expressions=values))
            if self._parse_ksql_options():
                self.raise_error("INSERT INTO … WITH is not translated")
            return self.expression(InsertAs(this=name, query=self._parse_ksql_query()))

        def _parse_ksql_query(self) -> Any:
            if not self._match(TokenType.SELECT):
                self.raise_error("Expected SELECT")
            items = self._parse_csv(self._parse_ksql_item)
            if not self._match(TokenType.FROM):
                self.raise_error("Expected FROM")
            parts: dict[str, Any] = {"expressions": items, "this": self._parse_ksql_relation()}
            parts["joins"] = list(iter(self._parse_ksql_join, None))
            if self._match_text_seq("WINDOW"):
                parts["window"] = self._parse_ksql_window()
            if self._match(TokenType.WHERE):
                parts["where"] = self._parse_ksql_condition("WHERE")
            parts |= self._parse_ksql_ends()
            if self._curr:
                self.raise_error(f"`{self._curr.text}` is not expected here")
            return self.expression(Query(**parts))

        def _parse_ksql_ends(self) -> dict[str, Any]:
            parts: dict[str, Any] = {}
            if self._match(TokenType.GROUP_BY):
                parts["group"] = self._parse_ksql_columns("GROUP BY")
            if self._match(TokenType.PARTITION_BY):
                parts["partition"] = self._parse_ksql_columns("PARTITION BY")
            if self._match(TokenType.HAVING):
                parts["having"] = self._parse_ksql_condition("HAVING")
            if self._match_text_seq("EMIT"):
                parts["emit"] = self._curr.text.upper()
                self._advance()
            if self._match(TokenType.LIMIT):
                parts["limit"] = self._parse_number()
            return parts

        def _parse_ksql_condition(self, clause: str) -> Any:
            condition = self._parse_disjunction()
            if condition is None:
                self.raise_error(f"Expected a condition after {clause}")
            return condition

        def _parse_ksql_columns(self, clause: str) -> list[Any]:
            columns: list[Any] = self._parse_csv(self._parse_ksql_group)
            if not columns:
                self.raise_error(f"Expected columns after {clause}")
            return columns

        def _parse_ksql_group(self) -> Any:
            item = self._parse_disjunction()
            return item.unnest() if isinstance(item, exp.Paren) else item

        def _parse_ksql_item(self) -> Any:
            if self._match(TokenType.STAR):
                return exp.Star()
            item = self._parse_disjunction()
            if self._match(TokenType.ALIAS) or (self._curr and self._curr.token_type in _NAMES):
                alias = self._parse_id_var(any_token=True)
                return self.expression(exp.Alias(this=item, alias=alias))
            return item

        def _parse_ksql_relation(self) -> Any:
            name = self._parse_id_var()
            if name is None:
                self.raise_error("Expected the name of a stream or a table")
            is_named = self._curr and self._curr.token_type in _NAMES
            implicit = is_named and self._curr.text.upper() not in _NO_ALIAS
            alias = self._parse_id_var() if self._match(TokenType.ALIAS) or implicit else None
            return self.expression(RelationName(this=name, alias=alias))

        def _parse_ksql_join(self) -> Any:
            start, side = self._index, "INNER"
            for word in ("LEFT", "RIGHT", "FULL"):
                if self._match_text_seq(word):
                    side = word
                    self._match_text_seq("OUTER")
            self._match_text_seq("INNER")
            if not self._match(TokenType.JOIN):
                self._retreat(start)
                return None
            parts: dict[str, Any] = {"this": self._parse_ksql_relation(), "side": side}
            if self._match_text_seq("WITHIN"):
                parts |= self._parse_ksql_within()
            if not self._match(TokenType.ON):
                self.raise_error("Expected ON")
            return self.expression(KsqlJoin(**parts, on=self._parse_disjunction()))

        def _parse_ksql_within(self) -> dict[str, Any]:
            if self._match(TokenType.L_PAREN):
                before = self._duration()
                self._match(TokenType.COMMA)
                parts = {"before": before, "after": self._duration()}
                self._match_r_paren()
            else:
                both = self._duration()
                parts = {"before": both, "after": both}
            if self._match_text_seq("GRACE", "PERIOD"):
                parts["grace"] = self._duration()
            return parts

        def _parse_ksql_window(self) -> Any:
            if self._curr and self._curr.text.upper() not in ("TUMBLING", "HOPPING", "SESSION"):
                self._advance()  # the window's name, which means nothing
            kind = self._curr.text.upper()
            self._advance()
            parts: dict[str, Any] = {"kind": kind}
            self._match_l_paren()
            while not self._match(TokenType.R_PAREN):
                parts |= self._parse_ksql_window_part()
                self._match(TokenType.COMMA)
            return self.expression(KsqlWindow(**parts))

        def _parse_ksql_window_part(self) -> dict[str, Any]:
            for name, words in (
                ("size", ("SIZE",)),
                ("advance", ("ADVANCE", "BY")),
                ("grace", ("GRACE", "PERIOD")),
                ("retention", ("RETENTION",)),
            ):
                if self._match_text_seq(*words):
                    return {name: self._duration()}
            return {"size": self._duration()}  # the gap of a session

        def _duration(self) -> int:
            """Parse `10 SECONDS` to milliseconds."""
            number, unit = self._parse_number(), self._curr.text.upper().removesuffix("S")
            if number is None or unit not in _UNITS:
                self.raise_error("Expected a duration in MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
            self._advance()
            return int(str(number and number.this)) * _UNITS[unit]


Ksql.Parser.COLUMN_OPERATORS[TokenType.DOT] = SqlParser.COLUMN_OPERATORS[TokenType.DOT]
_NAMES = frozenset({TokenType.VAR, TokenType.IDENTIFIER} | set(SqlParser.ALIAS_TOKENS))


def statements_of(text: str) -> Iterable[list[Token]]:
    """Return the tokens of each statement of a file. Raises sqlglot's TokenError."""
    statement: list[Token] = []
    for token in Ksql().tokenize(text):
        if token.token_type == TokenType.SEMICOLON:
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


def parse(statement: list[Token], text: str) -> exp.Expr:
    """Parse the tokens of one statement of `text`. Raises sqlglot's ParseError."""
    parse_tokens = cast("Callable[..., list[Any]]", Ksql().parser().parse)
    try:
        (tree,) = parse_tokens(statement, text)
    except IndexError as error:  # sqlglot looks behind the last token
        raise ParseError("it ends too early") from error
    return cast("exp.Expr", tree)
