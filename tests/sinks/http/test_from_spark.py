"""An HTTP sink behind Kafka and Spark: what Spark's workers wrote goes out in order, and once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.sinks.http.receiver import Endpoint
from tests.world import World, key_of
from tidegate.app import App
from tidegate.errors import SinkBusy

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_endpoint_gets_changes_that_spark_computed(world: World, tmp_path: Path) -> None:
    world.write_pipeline(
        **{f"kind: kafka, topic: {world.sink}, with_key: true": "kind: http, path: orders, batch_records: 3"}
    )
    for quantity in (10, 5, 0):
        world.stock(quantity, product=1)
        world.stock(quantity, product=2)
    with Endpoint(tmp_path).running() as endpoint:
        world.app = App.from_environment({**world.environment, "TIDEGATE_HTTP": endpoint.url})
        endpoint.script = ["right", (429, {"Retry-After": "60"})]
        with pytest.raises(SinkBusy):
            world.run("run-1")
        world.run("run-1")
        world.stock(7, product=1)
        world.run("run-2")
        values = defaultdict(list)
        for key, value in endpoint.emissions():
            values[key].append(value)
        requests = endpoint.idempotency_keys()
    changes = ['{"isAvailable": true}', '{"isAvailable": false}']
    assert values == {key_of(product=1): [*changes, changes[0]], key_of(product=2): changes}
    assert len(requests) == len(set(requests)) + 1, "one request was sent again, with its key"
