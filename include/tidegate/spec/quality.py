"""`quality`: which suites a batch has to pass, each over what, and what happens when it does not.

A checkpoint of Great Expectations names suites and what they look at in files of its own: see `checkpoints`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag
from pydantic import ValidationInfo as Info

from tidegate.core import RowExpectation
from tidegate.spec import names
from tidegate.spec.mistakes import did_you_mean, listed, mistake
from tidegate.spec.row_expectations import suite_rows
from tidegate.spec.scope import Model, scope_of
from tidegate.spec.sinks import OfStage
from tidegate.spec.trusted import check_module


def _known_sink(name: str | None, info: Info) -> str | None:
    sinks = scope_of(info).sinks
    if name is None:
        return name
    if info.data.get("stage") is not None:
        raise mistake("`stage` and `sink` are given at once", "Keep one: a sink gets one stage's emissions.")
    if sinks and name not in sinks:
        raise mistake(f"there is no sink `{name}`", did_you_mean(name, sinks, f"Write {listed(sinks)}."))
    return name


def _of_a_stage(rows: str, info: Info) -> str:
    if rows == "state" and info.data.get("sink") is not None:
        raise mistake("a sink has no state", "Name the stage: `stage: availability`.")
    return rows


def _of_values(on_failure: str, info: Info) -> str:
    """What is refused is what a stage would emit: its sinks and the stages after it are without it."""
    if on_failure == "quarantine" and (info.data.get("sink") is not None or info.data.get("of") != "values"):
        fix = "Leave `sink` and `of` out, and name the stage: `stage: availability`; or write `stop`."
        raise mistake("`quarantine` is for the values that a stage emits", fix)
    return on_failure


Modules = Annotated[
    tuple[Annotated[str, AfterValidator(check_module)], ...],
    Field(description="Modules with expectations of your own, which TIDEGATE_PYTHON_MODULES lists."),
]


class QualityCheck(Model):
    """A suite, what it is evaluated on, and what its failures do.

    A plan keeps the suite's text beside it, so that each try of a batch meets the same.
    """

    suite: Annotated[str, AfterValidator(names.check_suite)] = Field(
        description="The suite's name: that of its file in the folder of expectations, without `.json`."
    )
    stage: OfStage = Field(
        default=None, description="Whose emissions or state it looks at. Null: the last stage's."
    )
    sink: Annotated[str | None, AfterValidator(_known_sink)] = Field(
        default=None, description="The sink, by its name, whose columns it sees. Null: it is of a stage."
    )
    of: Annotated[Literal["values", "emissions", "state"], AfterValidator(_of_a_stage)] = Field(
        default="values",
        description="`values`: what is emitted, without deletions. `emissions`: deletions as well. "
        "`state`: the state rows that the batch changed.",
    )
    on_failure: Annotated[Literal["stop", "warn", "quarantine"], AfterValidator(_of_values)] = Field(
        default="stop",
        description="What an expectation does that says no `severity`. `stop`: the batch halts, and nothing "
        "of it is visible (`critical`). `warn`: it is told, and goes on (`warning`). `quarantine`: single "
        "rows that break it go into quarantine; what is not about those stops.",
    )
    modules: Modules = ()
    _suite_text: str | None = PrivateAttr(default=None)
    _row_expectations: tuple[RowExpectation, ...] = PrivateAttr(default=())

    @property
    def suite_text(self) -> str | None:
        """The suite's file as it was when the batch was planned; None: it is not planned, or by a tidegate
        that did not keep it.
        """
        return self._suite_text

    @property
    def row_expectations(self) -> tuple[RowExpectation, ...]:
        """Of `on_failure: quarantine`: those of the suite that are about single rows. A plan keeps them, too:
        a newer tidegate may know more of them.
        """
        return self._row_expectations

    @property
    def checks(self) -> tuple[QualityCheck, ...]:
        """Itself: a checkpoint is several."""
        return (self,)

    def read(self, _: CheckpointReader) -> tuple[QualityCheck, ...]:
        """Itself: it is written out."""
        return (self,)

    @property
    def target(self) -> tuple[str, str | None, str | None, str]:
        """The suite, and what it is evaluated on."""
        return self.suite, self.stage, self.sink, self.of

    def planned(self, suite_text: str) -> QualityCheck:
        """The same, with the suite's text. Raises ValueError where its expectations are asked for and it has
        none."""
        copy = self.model_copy()
        copy._suite_text = suite_text
        if self.on_failure == "quarantine":
            copy._row_expectations = suite_rows(suite_text).rows
        return copy


class QualityCheckpoint(Model):
    """A checkpoint of Great Expectations, by its name. A plan has its checks in its place."""

    checkpoint: Annotated[str, AfterValidator(names.check_suite)] = Field(
        description="The checkpoint's name: that of its file in the folder `checkpoints` beside that of the "
        "expectations, without `.json`."
    )
    on_failure: Literal["stop", "warn"] = Field(
        default="stop",
        description="What an expectation does that says no `severity`: `stop` or `warn`. To let rows go into "
        "quarantine, name the suite itself.",
    )
    modules: Modules = ()

    @property
    def checks(self) -> tuple[QualityCheck, ...]:
        """None, until its files are read: see `checkpoints.with_checkpoints`."""
        return ()

    def read(self, reader: CheckpointReader) -> tuple[QualityCheck, ...]:
        """Its checks, as its files are now."""
        return reader(self)


AnyCheck = QualityCheck | QualityCheckpoint
CheckpointReader = Callable[[QualityCheckpoint], tuple[QualityCheck, ...]]


def repeated_suite(checks: Iterable[QualityCheck]) -> str | None:
    """The suite of the first check that repeats an earlier one."""
    targets: set[Any] = set()
    for check in checks:
        if check.target in targets:
            return check.suite
        targets.add(check.target)
    return None


def _checks(written: AnyCheck | tuple[AnyCheck, ...] | None) -> tuple[AnyCheck, ...]:
    listed = written if isinstance(written, tuple) else () if written is None else (written,)
    fix = "Keep one, or let one look at another stage, sink or `of`."
    if (suite := repeated_suite(check for each in listed for check in each.checks)) is not None:
        raise mistake(f"the suite `{suite}` is evaluated twice on the same", fix)
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
    _Checkpoint = Annotated[QualityCheckpoint, Tag("checkpoint")]
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
"""One check or a list of them; always a tuple once it is read, which type checkers do not see."""
