"""Translate Spark's exceptions to tidegate's, and carry tidegate's own errors through Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)

from tidegate.errors import (
    BrokerUnavailable,
    BufferFull,
    ConditionFailed,
    Fenced,
    LakeDamaged,
    LakeUnavailable,
    LogTruncated,
    MemoryExhausted,
    OffsetsLost,
    OutcomeUnknown,
    PipelineInvalid,
    Problem,
    ProgressLost,
    ProgressUnreadable,
    RecordFailed,
    RecordTooLarge,
    SchemaChanged,
    SettingsInvalid,
    SetupFailed,
    SinkRefused,
    SparkLost,
    TidegateError,
    TimestampRefused,
    TopicMissing,
    UserFunctionFailed,
)

if TYPE_CHECKING:
    from tidegate.model.pipeline import Pipeline

# Signs of Spark's own folders and of tables that lookups read: tasks raise typed errors for what they write.
_STORAGE = ("No space left", "Permission denied", "Read-only file system", "AccessDenied")
_MEMORY = (
    *("OutOfMemoryError", "Java heap space", "GC overhead limit exceeded", "UNABLE_TO_ACQUIRE_MEMORY"),
    "OutOfDirectMemoryError",  # of Arrow batches on their way to Python
)
_MORE_MEMORY = (
    "Set TIDEGATE_SPARK_MEMORY to more than it is (unset, it is 1g; executors of a cluster have "
    "spark.executor.memory); then run again, nothing is lost. Of wide records, let a batch read a million or "
    "fewer (`source.max_records`)."
)
# The answer of a Spark Connect server that was restarted, or has closed the session, to an earlier handle.
_HANDLE_LOST = "INVALID_HANDLE."
_LOST = (
    (  # a server, or a driver, was ended in good order
        ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown"),
        "Spark was ended in the middle of the batch",
        "Run again, nothing is lost.",
    ),
    (  # such as by `connect`, for the next try
        ("OPERATION_CANCELED", "SPARK_JOB_CANCELLED"),
        "The batch's job was interrupted: by another try of it, or by hand",
        "Where another try has taken over, there is nothing to do; else run again, nothing is lost.",
    ),
    (
        ("Python worker exited unexpectedly",),
        "A Python worker of Spark has ended in the middle of the batch, most often for want of memory",
        "Let fewer tasks run at once, or have more memory beside Spark's heap; then run again.",
    ),
)
"""Signs in the text of a job that Spark could not finish, with their meaning and a fix."""
_DETAILS = re.compile(r'details = "([^"\n]*)')
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
# Errors that one record causes in a SQL expression (ANSI mode is on): as text, as exceptions.
_EXPRESSION = re.compile(
    r"Spark(?:Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds|Runtime|IllegalArgument)Exception: "
    r"(\[[A-Z0-9_.]+\] [^\n]*)"
)
_EXPRESSION_FAILED = (
    *(ArithmeticException, DateTimeException, NumberFormatException),
    ArrayIndexOutOfBoundsException,
)
# Spark uses these for other errors, too; errors of an expression have a condition, and no other cause's sign.
_EXPRESSION_MAY_HAVE_FAILED = (SparkRuntimeException, IllegalArgumentException)
# Java's exceptions that a function of Spark passes on: in the text of a driver, and of a Connect server.
_JAVA_FAILED = re.compile(
    r"java\.(?:lang|time|util|util\.regex)\."
    r"((?:NegativeArraySize|IllegalFormat\w*|\w*Format(?:Conversion|Argument)|PatternSyntax|NumberFormat"
    r"|(?:Array|String)?IndexOutOfBounds|Arithmetic|DateTime)Exception)(?:: |\) )([^\n]*)"
)
# Java uses this one for everything; it is an expression's where one of Spark's expressions raised it.
_REQUIREMENT = re.compile(
    r"IllegalArgumentException: (?:requirement failed: )?([^\n]+)(?:\n\tat [^\n]+){0,3}"
    r"\n\tat org\.apache\.spark\.sql\.catalyst\.expressions\."
)
_ADVICE = re.compile(
    r' If necessary set "spark\.[^"]+" to "[^"]+" to bypass this error\.| SQLSTATE: \w+$'
    r"|^\[USER_RAISED_EXCEPTION\] "
)
"""Advice that does not help: settings that let wrong values pass, which tidegate does not allow,
and codes.
"""
_RECORD_HIDDEN = "Spark does not tell which record it is. "
EXPRESSION_FIX = "Use a form that gives null (try_divide, try_cast, try_element_at, nullif …), or `case`."
_FRAGMENT = re.compile(r"^== SQL [^\n]*\n([^\n]+)", re.MULTILINE)
# Errors that are raised in a worker reach the driver as text only: these are written as JSON and read again.
_RAISED_IN_WORKERS = {
    error.__name__: error
    for error in (
        *(BrokerUnavailable, BufferFull, ConditionFailed, Fenced, LakeDamaged, LakeUnavailable),
        *(LogTruncated, MemoryExhausted, OffsetsLost, OutcomeUnknown, ProgressLost, ProgressUnreadable),
        *(RecordFailed, RecordTooLarge, SchemaChanged, SettingsInvalid, SinkRefused, TimestampRefused),
        *(TopicMissing, UserFunctionFailed),
    )
}
_REPORTED = re.compile(r"tidegate\.reported: (\{.*\})$", re.MULTILINE)


class _WorkerError(Exception):
    """A typed error on its way through Spark."""


# Python prints an exception as `module.name: text`: these names make the mark of `_REPORTED`.
_WorkerError.__module__, _WorkerError.__qualname__ = "tidegate", "reported"


@contextmanager
def report_worker_errors() -> Iterator[None]:
    """Raise typed errors in a worker so that `translated` finds them in Spark's text."""
    try:
        yield
    except tuple(_RAISED_IN_WORKERS.values()) as error:
        report = {"type": type(error).__name__, "what": error.what, "fix": error.fix}
        raise _WorkerError(json.dumps(report)) from error


@contextmanager
def translated(pipeline: Pipeline) -> Iterator[None]:
    """Raise typed errors in place of Spark's, with the first line of Spark's message.

    Raises PipelineInvalid for an expression that Spark cannot analyse, RecordFailed for one that fails on a
    record's values, SparkLost if Spark has ended, and the errors that tasks raised. A signal, such as
    KeyboardInterrupt, is raised as itself. Other errors pass unchanged.

    Example::

        with translated(pipeline):
            frame.collect()
    """
    try:
        yield
    except TidegateError:
        raise
    except AnalysisException as error:
        raise PipelineInvalid([_problem(pipeline, error)]) from error
    except Exception as error:
        stop = _stopped_by(error)
        if stop is not None:
            raise stop from None
        typed = _typed(error, pipeline)
        if typed is None:
            raise
        raise typed from error


def _stopped_by(error: Exception) -> BaseException | None:
    """Return the signal during whose handling an error was raised; None if there was no signal.

    py4j closes its connection for a signal, and PySpark calls the JVM over it on the way out.
    """
    before: BaseException | None = error
    while isinstance(before, Exception):
        before = before.__context__
    return before


def _problem(pipeline: Pipeline, error: PySparkException) -> Problem:
    return Problem(
        pipeline.pipeline, 1, "stages", _first_line(str(error)), "Correct the expression's names and types."
    )


def _typed(error: Exception, pipeline: Pipeline) -> TidegateError | None:
    try:
        text = str(error)  # Spark's exceptions ask the JVM for their message, which may have ended
    except (Py4JError, OSError):
        return _lost()
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return _lost()
    if (server_lost := _server_lost(error, text)) is not None:
        return server_lost
    if isinstance(error, _EXPRESSION_FAILED):
        return _expression_failed(_first_line(text), text, pipeline)
    # py4j's own error, of a call that got no answer; what Java answers has a trace, or another type
    if type(error) is Py4JError and "Trace:" not in text:
        return _lost()
    typed = _from_text(text, pipeline)
    if typed is None and isinstance(error, _EXPRESSION_MAY_HAVE_FAILED) and error.getCondition():
        return _expression_failed(_first_line(text), text, pipeline)
    return typed


def _server_lost(error: Exception, text: str) -> SparkLost | None:
    """Return the error for a Connect server that gave no answer to repeated calls, has lost the session, or
    refuses work, itself or through a gateway.
    """
    status = grpc_status(error)
    if status is not None and status.name == "RESOURCE_EXHAUSTED":
        return SparkLost(
            f"The Spark Connect server takes no more: {status.details}",
            "Let it have less to do, or more to do it with; then run again, nothing is lost.",
        )
    if (status is not None and status.name == "UNAVAILABLE") or _HANDLE_LOST in text:
        return SparkLost(
            "The Spark Connect server has ended, was restarted, or hangs, in the middle of the batch",
            "Look at its log and its memory; then run again, nothing is lost.",
        )
    return None


@dataclass(frozen=True)
class GrpcStatus:
    """The status of a call to a Spark Connect server: its name, and its details.

    Example: `GrpcStatus("UNAVAILABLE", "failed to connect to all addresses")`.
    """

    name: str
    details: str


def grpc_status(error: Exception) -> GrpcStatus | None:
    """Return the status of the call that ended with this error; None if the error is not that of a call."""
    code = getattr(error, "_grpc_status_code", None)  # PySpark has no public attribute for it
    if code is None:
        return None
    text = str(error)
    details = _DETAILS.search(text)  # gRPC's own errors have several lines
    return GrpcStatus(code.name, details[1] if details else _first_line(text))


def _lost() -> SparkLost:
    return SparkLost(
        "Spark's JVM has ended in the middle of the batch, most often for want of memory", _MORE_MEMORY
    )


def _from_text(text: str, pipeline: Pipeline) -> TidegateError | None:
    if (reported := _REPORTED.search(text)) is not None:
        error = json.loads(reported[1])
        return _RAISED_IN_WORKERS[error["type"]](error["what"], error["fix"])
    if any(sign in text for sign in _MEMORY):
        return MemoryExhausted("The batch does not fit into Spark's memory", _MORE_MEMORY)
    for signs, what, fix in _LOST:
        if any(sign in text for sign in signs):
            return SparkLost(what, fix)
    if (failed := _EXPRESSION.search(text)) is not None:
        return _expression_failed(failed[1], text, pipeline)
    if (failed := _JAVA_FAILED.search(text)) is not None:
        return _expression_failed(f"{failed[1]}: {failed[2]}", text, pipeline)
    if (failed := _REQUIREMENT.search(text)) is not None:
        return _expression_failed(failed[1], text, pipeline)
    if _OTHER_PYTHON in text:
        return SetupFailed(
            f"Spark's workers run another Python: {_line_with([_OTHER_PYTHON], text)}",
            "Set PYSPARK_PYTHON to the version that runs here, where workers or Connect server start.",
        )
    if any(sign in text for sign in _STORAGE):
        return LakeUnavailable(
            f"Spark has no access to its storage: {_line_with(_STORAGE, text)}",
            "Free space or correct the rights of Spark's folders (spark.local.dir), or of the tables that "
            "lookups read; then run again, nothing is lost.",
        )
    return None


def _expression_failed(says: str, text: str, pipeline: Pipeline) -> RecordFailed:
    """Return the error of an expression. Spark computes whole batches, and does not name the record."""
    from tidegate.model.conversions import as_written  # late: workers, which have no grammar, import this

    fragment = _FRAGMENT.search(text)
    expressions = [sql for stage in pipeline.stages for sql in (*stage.values.values(), stage.where) if sql]
    expression = f"`{as_written(fragment[1].strip(), expressions)}`" if fragment else "An expression"
    return RecordFailed(
        f"{expression} fails on a record's values: {_ADVICE.sub('', says)[:300]}",
        f"{_RECORD_HIDDEN}{EXPRESSION_FIX}",
    )


def hides_its_record(error: RecordFailed) -> bool:
    """Return whether an expression failed in Spark, which does not name the record."""
    return error.fix.startswith(_RECORD_HIDDEN)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), text)[:300]


def _line_with(signs: Sequence[str], text: str) -> str:
    """Return the line that names the cause: the first line often only names py4j's call."""
    return _first_line("\n".join(line for line in text.splitlines() if any(sign in line for sign in signs)))
