"""What becomes of Spark's exceptions when memory is short, or nobody answers."""

from __future__ import annotations

from typing import NoReturn

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tests.engine.small_heap import PIPELINE
from tidegate.engine.errors import translated
from tidegate.errors import MemoryExhausted, SparkLost


class Speechless(Exception):
    """An exception of a JVM that has ended: what it says can no longer be asked."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("Connection refused")


def fail(error: Exception) -> NoReturn:
    with translated(PIPELINE):
        raise error
    raise AssertionError("translated swallowed it")


@pytest.mark.parametrize(
    "text",
    [
        "Task 1.0 in stage 1.0 failed: java.lang.OutOfMemoryError: Java heap space\n\tat java.nio.ByteBuffer",
        "java.lang.OutOfMemoryError: GC overhead limit exceeded",
        "java.lang.OutOfMemoryError: Cannot reserve 4194304 bytes of direct buffer memory",
        "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory, got 0. SQLSTATE: 53200",
        # the cause, not the timeout that came of it
        "java.util.concurrent.TimeoutException: Caused by: java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_a_full_heap_is_an_error_that_says_what_to_set(text: str) -> None:
    with pytest.raises(
        MemoryExhausted, match=r"Set TIDEGATE_SPARK_MEMORY .* run again, nothing is lost"
    ) as caught:
        fail(Exception(text))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o123.collectToPython"),
        ConnectionRefusedError("Connection refused"),
        ConnectionResetError("Connection reset by peer"),
        Speechless(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_jvm_that_does_not_answer_is_worth_another_try(error: Exception) -> None:
    with pytest.raises(SparkLost, match=r"TIDEGATE_SPARK_MEMORY .* nothing is lost") as caught:
        fail(error)
    assert caught.value.exit_code == 1


def test_what_java_answers_is_not_taken_for_silence() -> None:
    text = "An error occurred while calling o1.sum. Trace:\npy4j.Py4JException: Method sum([]) does not exist"
    with pytest.raises(Py4JError, match="does not exist"):
        fail(Py4JError(text))
