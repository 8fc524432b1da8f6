"""`quality`: the suites that a batch must pass, the rows that each evaluates, and what a failure does.

A checkpoint of Great Expectations lists suites and their data in files of its own: see `checkpoints`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag
from pydantic import ValidationInfo as Info

from tidegate.kernel import RowExpectation
from tidegate.model import names
from tidegate.model.mistakes import did_you_mean, listed, mistake
from tidegate.model.row_expectations import suite_rows
from tidegate.model.scope import Model, StoredAs, scope_of
from tidegate.model.trusted import check_module
from tidegate.sinks.model import StageName


def _check_sink(name: str | None, info: Info) -> str | None:
    sinks = scope_of(info).sinks
    if name is None:
        return name
    if info.data.get("stage") is not None:
        raise mistake("`stage` and `sink` are given at once", "Keep one: a sink gets one stage's emissions.")
    if sinks and name not in sinks:
        raise mistake(f"there is no sink `{name}`", did_you_mean(name, sinks, f"Write {listed(sinks)}."))
    return name


def _check_rows(rows: str, info: Info) -> str:
    if rows == "state" and info.data.get("sink") is not None:
        raise mistake("a sink has no state", "Name the stage: `stage: availability`.")
    return rows


def _check_on_failure(on_failure: str, info: Info) -> str:
    """Allow `quarantine` only for a stage: refused rows reach neither sinks nor later stages."""
    if on_failure == "quarantine" and (
        info.data.get("sink") is not None or info.data.get("rows") != "values"
    ):
        fix = "Leave `sink` and `of` out, and name the stage: `stage: availability`; or write `stop`."
        raise mistake("`quarantine` is for the values that a stage emits", fix)
    return on_failure


Modules = Annotated[
    tuple[Annotated[str, AfterValidator(check_module)], ...],
    Field(description="Modules with expectations of your own, which TIDEGATE_PYTHON_MODULES lists."),
]


class QualityCheck(Model):
    """A suite, the rows that it evaluates, and what its failures do.

    A plan stores the suite's text, so that each attempt of a batch uses the same suite.
    """

    suite: Annotated[str, AfterValidator(names.check_suite)] = Field(
        description="The suite's name: that of its file in the folder of expectations, without `.json`."
    )
    stage: StageName = Field(
        default=None, description="The stage whose emissions or state it evaluates. Null: the last one."
    )
    sink: Annotated[str | None, AfterValidator(_check_sink)] = Field(
        default=None, description="The sink, by its name, whose columns it sees. Null: a stage's columns."
    )
    rows: Annotated[Literal["values", "emissions", "state"], AfterValidator(_check_rows)] = Field(
        alias="of",
        default="values",
        description="`values`: what is emitted, without deletions. `emissions`: deletions as well. "
        "`state`: the state rows that the batch changed.",
    )
    on_failure: Annotated[Literal["stop", "warn", "quarantine"], AfterValidator(_check_on_failure)] = Field(
        default="stop",
        description="What a failure does if the expectation has no `severity`. `stop`: the batch halts, and "
        "nothing of it is visible (`critical`). `warn`: tidegate alerts, and the batch continues "
        "(`warning`). "
        "`quarantine`: rows that break it go into quarantine; an expectation on more than single rows stops.",
    )
    modules: Modules = ()
    _suite_text: str | None = PrivateAttr(default=None)
    _row_expectations: tuple[RowExpectation, ...] = PrivateAttr(default=())

    @property
    def suite_text(self) -> str | None:
        """The text of the suite's file when the batch was planned; None before it is planned."""
        return self._suite_text

    @property
    def row_expectations(self) -> tuple[RowExpectation, ...]:
        """The expectations on single rows of the suite, if `on_failure` is `quarantine`.

        A plan stores them, because a newer tidegate may support more of them.
        """
        return self._row_expectations

    @property
    def checks(self) -> tuple[QualityCheck, ...]:
        """The check itself. A checkpoint has several checks."""
        return (self,)

    def read(self, _: CheckpointReader) -> tuple[QualityCheck, ...]:
        """Return the check itself. Only a checkpoint reads files."""
        return (self,)

    @property
    def target(self) -> tuple[str, str | None, str | None, str]:
        """The suite, stage, sink and kind of rows: two checks with the same target are a repetition."""
        return self.suite, self.stage, self.sink, self.rows

    def planned(self, suite_text: str) -> QualityCheck:
        """Return the check with the suite's text.

        Raises ValueError if the check quarantines rows and the text is not a suite.
        """
        # Models are frozen, and one may be shared by several plans.
        copy = self.model_copy()
        copy._suite_text = suite_text
        if self.on_failure == "quarantine":
            copy._row_expectations = suite_rows(suite_text).rows
        return copy


class QualityCheckpoint(Model):
    """A checkpoint of Great Expectations, by its name. A plan contains its checks instead."""

    checkpoint: Annotated[str, AfterValidator(names.check_suite)] = Field(
        description="The checkpoint's name: that of its file in the folder `checkpoints` beside that of the "
        "expectations, without `.json`."
    )
    on_failure: Literal["stop", "warn"] = Field(
        default="stop",
        description="What a failure does if the expectation has no `severity`: `stop` or `warn`. To put rows "
        "into quarantine, name the suite itself.",
    )
    modules: Modules = ()

    @property
    def checks(self) -> tuple[QualityCheck, ...]:
        """An empty tuple, until its files are read: see `planned.with_checkpoints`."""
        return ()

    def read(self, reader: CheckpointReader) -> tuple[QualityCheck, ...]:
        """Return the checkpoint's checks, as its files are now."""
        return reader(self)


AnyCheck = QualityCheck | QualityCheckpoint
CheckpointReader = Callable[[QualityCheckpoint], tuple[QualityCheck, ...]]


def repeated_suite(checks: Iterable[QualityCheck]) -> str | None:
    """Return the suite of the first check that repeats an earlier one; None if there is none.

    Args:
        checks: Checks in the order of the file.
    """
    targets: set[Any] = set()
    for check in checks:
        if check.target in targets:
            return check.suite
        targets.add(check.target)
    return None


def _checks(written: AnyCheck | tuple[AnyCheck, ...] | None) -> tuple[AnyCheck, ...]:
    listed = written if isinstance(written, tuple) else () if written is None else (written,)
    fix = "Keep one, or let one look at another stage, sink or `of`."
    if (suite := repeated_suite(check for entry in listed for check in entry.checks)) is not None:
        raise mistake(f"the suite `{suite}` is evaluated twice on the same rows", fix)
    return listed


def _form(written: Any) -> str:
    if written is None:
        return "none"
    return "several" if isinstance(written, (list, tuple)) else _kind(written)


def _kind(written: Any) -> str:
    named = isinstance(written, QualityCheckpoint) or (isinstance(written, dict) and "checkpoint" in written)
    return "checkpoint" if named else "check"


if TYPE_CHECKING:
    Quality = tuple[AnyCheck, ...]
else:
    _Check = Annotated[QualityCheck, Tag("check")]
    _Checkpoint = Annotated[QualityCheckpoint, Tag("checkpoint"), StoredAs((QualityCheck,))]
    _Either = Annotated[_Check | _Checkpoint, Discriminator(_kind)]
    Quality = Annotated[
        Annotated[
            _Check
            | _Checkpoint
            | Annotated[tuple[_Either, ...], Tag("several")]
            | Annotated[None, Tag("none")],
            Discriminator(_form),
        ],
        AfterValidator(_checks),
    ]
"""A check or a list of checks. Validation always returns a tuple, which type checkers cannot infer."""
