"""Equivalences of `on: change`: when two values count as the same. One class each, with its option in a file.

`bind` returns a comparison of two outputs of one batch; see `values.Values` for outputs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import UserFunctionFailed
from tidegate.expressions import Condition
from tidegate.kernel.equality import any_differs, equal, has_map, ordered, unsigned_zero
from tidegate.kernel.json_text import encoder
from tidegate.kernel.options import Form, HasOptions, option
from tidegate.kernel.ordering import after_first
from tidegate.kernel.reduce import Values
from tidegate.kernel.strategy import Retype, Sameness

Columns = tuple[str, ...]


class Equivalence(HasOptions):
    """Settings, from which `bind` makes the comparison of two outputs of `on: change`."""

    word: ClassVar[str | None] = None
    """What a file writes in place of options."""
    is_exact: ClassVar[bool] = False
    """Whether it compares each column by itself, so that `equality.any_differs` decides, too."""

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs in these columns.

        Args:
            values: The values of one Arrow batch.
            columns: The columns that are compared.

        Raises UserFunctionFailed if it calls a function that does not exist.
        """
        raise NotImplementedError

    def text(self, values: Values, columns: Columns) -> Callable[[Any], bytes]:
        """Return the function that writes an output's columns as text: equal outputs have equal texts.

        Args:
            values: The values of one Arrow batch.
            columns: The columns that count.
        """
        read, text = _row_reader(values, columns), _row_text(values, columns)
        return lambda output: text(read(output))

    def decides_columns(self, value: pa.StructType) -> bool:
        """Return whether `leaves` decides values with these columns, and cannot fail."""
        return False

    def leaves(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray, columns: Columns
    ) -> pa.BooleanArray:
        """Return True where a candidate is emitted; for the arguments see `Emit.emits_latest`.

        Args:
            columns: The columns that are compared.
        """
        raise NotImplementedError

    def retyped(self, retype: Retype, columns: Columns) -> Equivalence:
        """Return the equivalence with its condition typed for the actual columns.

        Args:
            retype: Returns a condition with the types of columns.
            columns: The columns that the stage emits.
        """
        return self

    @property
    def functions(self) -> Mapping[str, str | None]:
        """The user's functions that it calls -> the digest of their source; None before they are planned."""
        return {}

    def with_digests(self) -> Equivalence:
        """Return the equivalence with the present digests of its functions.

        Raises UserFunctionFailed if one cannot be imported.
        """
        return self


@dataclass(frozen=True)
class Exact(Equivalence):
    """Compares each column null-safely; NaN equals NaN, 0.0 equals -0.0, and a map's order does not count."""

    word: ClassVar[str | None] = "exact"
    is_exact: ClassVar[bool] = True

    def bind(self, values: Values, columns: Columns) -> Sameness:
        fields = [values.field(name) for name in columns]
        return lambda old, new, *_: all(equal(read(old), read(new)) for read in fields)

    def text(self, values: Values, columns: Columns) -> Callable[[Any], bytes]:
        """Return the function that writes an output's columns; 0.0 and -0.0 are equal, and have one text."""
        read, text = _row_reader(values, columns), _row_text(values, columns)
        return lambda output: text(unsigned_zero(read(output)))

    def decides_columns(self, value: pa.StructType) -> bool:
        """Return True: columns of all types can be compared."""
        return True

    def leaves(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray, columns: Columns
    ) -> pa.BooleanArray:
        """Return True where a value appears, vanishes or differs.

        Equality is transitive, so each candidate is compared with the one before it, emitted or not.
        """
        appears_or_vanishes = pc.xor(now.is_valid(), has_last)
        both_valid = pc.and_(now.is_valid(), has_last)
        differs = any_differs(now.slice(1), now.slice(0, max(len(now) - 1, 0)), columns)
        return pc.or_(appears_or_vanishes, pc.and_(both_valid, after_first(differs, len(now))))


@dataclass(frozen=True)
class Bytes(Equivalence):
    """Compares byte for byte, as JSON with each map sorted by its keys."""

    word: ClassVar[str | None] = "bytes"

    def bind(self, values: Values, columns: Columns) -> Sameness:
        text = self.text(values, columns)
        return lambda old, new, *_: text(old) == text(new)


@dataclass(frozen=True)
class SqlEqual(Equivalence):
    """Values are equal if a condition over `old.x` and `new.x` is true; null means that they differ."""

    sql: Annotated[Condition, Form("comparison")] = option(
        "A condition over `old.x` and `new.x`; if it is true, the values are equal.",
        'sql: "abs(old.price - new.price) < 0.5"',
    )

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison; it raises ConditionFailed if the condition has no result."""
        read = _row_reader(values, columns)
        return lambda old, new, *_: self.sql.evaluate({"old": read(old), "new": read(new)}) is True

    def retyped(self, retype: Retype, columns: Columns) -> Equivalence:
        return replace(self, sql=retype(self.sql, columns))


@dataclass(frozen=True)
class PythonEqual(Equivalence):
    """Values are equal if a Python function, called with both values as dicts, returns True."""

    python: Annotated[str, Form("function")] = option(
        "`module:function` of two dicts, in a module that TIDEGATE_PYTHON_MODULES lists.",
        'python: "shop.compare:same"',
    )
    digest: str | None = None
    """The digest of its module's source when the pipeline was planned; None before."""

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison. Raises UserFunctionFailed if the function fails or does not exist."""
        function = load(self.python, self.digest)
        read = _row_reader(values, columns, maps_ordered=True)

        def same(old: Any, new: Any, *_: int) -> bool:
            try:
                answer = function(read(old), read(new))
            # the user's code can raise anything, and it is the record that must be named
            except Exception as error:
                raise self._failed(f"raised {type(error).__name__}: {error}") from error
            # an accidental return value, such as None or a number, must not suppress records
            if not isinstance(answer, bool):
                raise self._failed(f"gave {answer!r}, which is neither True nor False")
            return answer

        return same

    @property
    def functions(self) -> Mapping[str, str | None]:
        return {self.python: self.digest}

    def with_digests(self) -> Equivalence:
        """Return it with the present digest. Raises UserFunctionFailed if it cannot be imported."""
        return replace(self, digest=source_digest(self.python))

    def _failed(self, how: str) -> UserFunctionFailed:
        return UserFunctionFailed(
            f"The function {self.python} {how}", "Correct it and run again; nothing is lost."
        )


def _row_reader(
    values: Values, columns: tuple[str, ...], maps_ordered: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """Return the reader of compared columns; `maps_ordered`: equal maps are equal lists of pairs."""
    fields = [
        (name, values.field(name), ordered if maps_ordered and has_map(values.type_of(name)) else _as_is)
        for name in columns
    ]
    return lambda output: {name: form(read(output)) for name, read, form in fields}


def _as_is(value: Any) -> Any:
    return value


def _row_text(values: Values, columns: tuple[str, ...]) -> Callable[[dict[str, Any]], bytes]:
    """Return the function that writes the compared columns as JSON text, the same for equal maps."""
    encode = encoder(pa.struct([(name, values.type_of(name)) for name in columns]), ordered=True)
    return lambda row: encode(row).encode()


_CORRECT = "Correct it and run again; nothing is lost."


def source_digest(name: str) -> str:
    """Return the SHA-256, in hex, of the present source of a function's module. Raises UserFunctionFailed.

    Modules that it imports do not count.
    """
    module = name.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
        loader: Any = spec and spec.loader
        source: str | bytes = loader.get_source(module) or loader.get_data(spec and spec.origin)
    except Exception as error:
        raise _unfound(name, f"{type(error).__name__}: {error}") from error
    return hashlib.sha256(source if isinstance(source, bytes) else source.encode()).hexdigest()


def load(name: str, digest: str | None) -> Callable[[Any, Any], Any]:
    """Return the function. Raises UserFunctionFailed if it does not exist, or its module has another digest.

    `digest` None: any version.

    Example: `load("operator:eq", None)` is `operator.eq`.
    """
    function, loaded_digest = _loaded(name)
    if digest is not None and loaded_digest != digest:
        raise UserFunctionFailed(
            f"The source of {name} is not that of the function which the batch was planned with",
            "Put that back and run again; or drop the plan: then the next batch is planned with the "
            "function as it is now.",
        )
    return function


# Python imports a module once per process, so its digest is that of the first import
@cache
def _loaded(name: str) -> tuple[Callable[[Any, Any], Any], str | None]:
    """Return the function, and the digest of its module when this process imported it, if it has one."""
    module, _, function_name = name.partition(":")
    digest = None
    with suppress(UserFunctionFailed):
        digest = source_digest(name)
    try:
        function = getattr(importlib.import_module(module), function_name)
    except Exception as error:
        raise _unfound(name, f"{type(error).__name__}: {error}") from error
    if not callable(function):
        raise UserFunctionFailed(f"The function {name} is not a function", _CORRECT)
    return function, digest


def _unfound(name: str, how: str) -> UserFunctionFailed:
    return UserFunctionFailed(f"The function {name} cannot be imported: {how}", _CORRECT)
