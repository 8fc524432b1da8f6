"""Sessions of servers: what is told of one that is not there, and settings that are changed for a while."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tidegate.engine.session import changed, open_session
from tidegate.errors import SparkLost
from tidegate.local.processes import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_server_that_does_not_answer_is_a_transient_error_without_the_login() -> None:
    port = free_port()
    with pytest.raises(SparkLost, match=f"answers at 127.0.0.1:{port}") as caught:
        open_session(f"sc://127.0.0.1:{port}/;token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.spark
def test_settings_that_are_changed_for_a_while_are_as_before_also_after_an_error(spark: SparkSession) -> None:
    names = ("spark.sql.shuffle.partitions", "spark.tidegate.nobody_knows_it")
    before = [spark.conf.get(name, None) for name in names]
    inside = []
    with suppress(ZeroDivisionError), changed(spark, dict.fromkeys(names, "3")):
        inside = [spark.conf.get(name) for name in names]
        raise ZeroDivisionError
    assert inside == ["3", "3"]
    assert [spark.conf.get(name, None) for name in names] == before
    assert before[1] is None
