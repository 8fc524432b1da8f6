"""`{python: "module:Class"}`: an aggregate of the user's own.

The class has the methods `add(value)`, `merge(other)` and `result()`, and is created without arguments. Its
state is its attributes, as a JSON object: so the state of a key can be read by anyone, and each record finds
the same state wherever batches are cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import pyarrow as pa

from tidegate.errors import UserFunctionFailed
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.types import DOUBLE, Type
from tidegate.kernel.aggregates.function import Function
from tidegate.kernel.equivalence import load, source_digest
from tidegate.kernel.options import Form, HasOptions, option

Result = TypeVar("Result")


@dataclass(frozen=True)
class PythonAggregate(HasOptions):
    """An aggregate by a Python class with the methods `add`, `merge` and `result`."""

    python: Annotated[str, Form("class")] = option(
        "`module:Class` with the methods `add`, `merge` and `result`, in a module that "
        "TIDEGATE_PYTHON_MODULES lists.",
        'python: "shop.aggregates:Basket"',
    )
    argument: Annotated[str | None, Form("expression")] = option(
        "The expression that `add` gets of each record, if it is not null. Null: all columns, as a dict.",
        "of: quantity * price",
        default=None,
        written="of",
    )
    type: Annotated[Type, Form("type")] = option(
        "The type of what `result` returns, as in `columns`.", "type: double", default=DOUBLE
    )
    digest: str | None = None
    """The digest of its module's source when the pipeline was planned; None before."""

    @property
    def text(self) -> str:
        """The aggregate for people."""
        return f"python {self.python} of {self.argument or '*'} as {self.type.text}"

    def with_digest(self) -> PythonAggregate:
        """Return it with the present digest. Raises UserFunctionFailed if there is no such class."""
        return replace(self, digest=source_digest(self.python))

    def rule(self) -> Function:
        """Return the function; its accumulator is JSON text."""
        type_ = arrow_type(self.type)
        return Function(
            fold=self._add,
            merge=self._merge,
            accumulator_type=lambda _: pa.string(),
            result_type=lambda _: type_,
            start=self._start,
            finish=lambda state: self._result(state, type_),
        )

    def _class(self) -> Any:
        return load(self.python, self.digest)

    def _start(self) -> str:
        return self._closed(self._called("__init__", self._class()))

    def _add(self, state: str, value: Any) -> str:
        instance = self._opened(state)
        self._called("add", lambda: instance.add(value))
        return self._closed(instance)

    def _merge(self, older: str, newer: str) -> str:
        instance, other = self._opened(older), self._opened(newer)
        self._called("merge", lambda: instance.merge(other))
        return self._closed(instance)

    def _result(self, state: str, type_: pa.DataType) -> Any:
        instance = self._opened(state)
        result = self._called("result", lambda: instance.result())
        try:
            return pa.scalar(result, type_).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise self._failed(f"result gave {result!r}, which is no {self.type.text}") from None

    def _opened(self, state: str) -> Any:
        class_ = self._class()
        instance = class_.__new__(class_)
        instance.__dict__.update(json.loads(state))
        return instance

    def _closed(self, instance: Any) -> str:
        try:
            # sorted: equal states are equal texts
            return json.dumps(vars(instance), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise self._failed(f"add leaves attributes that are no JSON: {error}") from error

    def _called(self, method: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        # the user's code can raise anything, and it is the record that must be named
        except Exception as error:
            raise self._failed(f"{method} raised {type(error).__name__}: {error}") from error

    def _failed(self, how: str) -> UserFunctionFailed:
        fix = "Correct it and run again; nothing is lost."
        return UserFunctionFailed(f"The method {self.python}.{how}", fix)
