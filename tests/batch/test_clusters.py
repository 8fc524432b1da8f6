"""Source and sinks in Kafka clusters of their own: two real brokers, one of them with TLS and logins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import NewTopic

from kafka import KafkaAdminClient
from tests.sampling import sampled
from tests.secured import KINDS, SecuredBroker
from tests.world import NOW_MS, World, key_of
from tidegate.app import App
from tidegate.batch import Trigger, plan_batch
from tidegate.cli import cli
from tidegate.errors import ProgressLost, SettingsInvalid, SinkRefused, TopicRecreated
from tidegate.inspect.explain import explain
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate_dev.demo.topics import read_published

pytestmark = [pytest.mark.spark, pytest.mark.broker]
MUTUAL, SCRAM = "mutual TLS, texts", "SCRAM-SHA-512 by TLS"


@dataclass
class TwoClusters:
    """A world whose topics are on the shared broker, and have namesakes on the secured one, `shop`."""

    world: World
    secured: SecuredBroker
    kind: str = SCRAM

    def __post_init__(self) -> None:
        self.admin(lambda admin: admin.create_topics([NewTopic(name, 2, 1) for name in self.topics]))
        self.world.app = self.app()

    @property
    def topics(self) -> tuple[str, str]:
        return self.world.source, self.world.sink

    def admin(self, call: Any) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=self.secured.bootstrap_servers)
        try:
            return call(admin)
        finally:
            admin.close()

    @property
    def environment(self) -> dict[str, str]:
        shop = json.dumps(KINDS[self.kind](self.secured))
        return self.world.environment | {"TIDEGATE_KAFKA_SHOP": shop}

    def app(self, **more: str) -> App:
        variables = {name: text for name, text in (self.environment | more).items() if text}
        return App.from_environment(variables)

    def sink_in_shop(self, topic: str = "", more: str = "") -> None:
        """Send to the secured broker; a second sink sends to the shared one as before, where `more` is it."""
        topic = topic or self.world.sink
        named = f"connection: shop, topic: {topic}"
        self.world.write_pipeline(**{f"topic: {self.world.sink}": named}, extra=more)

    def source_in_shop(self) -> None:
        self.world.write_pipeline(source_extra="connection: shop")

    def published(self) -> dict[str, list[Any]]:
        messages = read_published(self.secured.bootstrap_servers, self.world.sink)
        return {key: [value and value["isAvailable"] for value in values] for key, values in messages.items()}


@pytest.fixture
def clusters(world: World, secured: SecuredBroker) -> TwoClusters:
    return TwoClusters(world, secured)


@pytest.mark.parametrize("kind", sampled([MUTUAL, SCRAM], always=[SCRAM]))
def test_batch_reads_and_publishes_in_different_clusters(
    world: World, secured: SecuredBroker, kind: str
) -> None:
    clusters = TwoClusters(world, secured, kind)
    clusters.sink_in_shop()
    for quantities in ((10, 5, 0), (0, 3), (0,)):
        world.stock(*quantities)
        world.run()
    assert clusters.published() == {key_of(): [True, False, True, False]}
    assert world.published() == {}
    assert world.app.ledger.publications(world.stream, 3) == {f"kafka:shop:{world.sink}": 1}
    assert PROGRESS_TOPIC in clusters.admin(lambda admin: admin.list_topics())


def test_source_login_is_not_used_for_the_sink(clusters: TwoClusters) -> None:
    world = clusters.world
    clusters.source_in_shop()
    world.stock(1)  # which nobody reads
    World.stock(_Elsewhere(world, clusters.secured.bootstrap_servers), 0)
    world.run()
    assert (world.published(), clusters.published()) == ({key_of(): [False]}, {})


class _Elsewhere(World):
    """A world with the same topics in another cluster."""

    def __init__(self, world: World, servers: str) -> None:
        self.servers, self.source, self.sink = servers, world.source, world.sink


def test_same_topic_name_in_two_clusters_gets_everything(
    clusters: TwoClusters,
) -> None:
    world = clusters.world
    clusters.sink_in_shop(more="")
    file = world.folder / "pipelines" / "availability.yaml"
    second = f"  - {{kind: kafka, topic: {world.sink}, with_key: true, refused_timestamp: quarantine}}\n"
    file.write_text(file.read_text().replace("sinks:\n", f"sinks:\n{second}"))
    world.stock(1)
    plan = world.run().plan
    assert plan is not None
    assert list(plan.timestamps) == [world.sink]
    assert clusters.published() == world.published() == {key_of(): [True]}
    assert set(world.app.ledger.publications(world.stream, 1)) == {
        f"kafka:{world.sink}",
        f"kafka:shop:{world.sink}",
    }


def test_batch_goes_to_its_planned_cluster(clusters: TwoClusters) -> None:
    world = clusters.world
    clusters.sink_in_shop()
    world.stock(1)
    plan = plan_batch(world.app, world.pipeline, Trigger("run", NOW_MS)).plan
    assert plan is not None
    assert '"connection":"shop"' in plan.spec_compiled
    world.write_pipeline()
    world.run("run")
    assert (clusters.published(), world.published()) == ({key_of(): [True]}, {})
    world.stock(0)
    world.run()
    assert (clusters.published(), world.published()) == ({key_of(): [True]}, {key_of(): [False]})


def test_sink_can_share_the_source_name_elsewhere_only(
    clusters: TwoClusters,
) -> None:
    world = clusters.world
    clusters.sink_in_shop(world.source)
    world.stock(1)
    same = App.from_environment(world.environment | {"TIDEGATE_KAFKA_SHOP": world.servers})
    with pytest.raises(SinkRefused, match="is the one that the pipeline reads"):
        plan_batch(same, world.pipeline, Trigger("r", NOW_MS))
    assert world.app.ledger.open_plan(world.stream) is None
    world.run()
    assert [*read_published(clusters.secured.bootstrap_servers, world.source)] == [key_of()]


@pytest.mark.parametrize("place", ["sink_in_shop", "source_in_shop"])
def test_missing_connection_stops_before_the_plan(clusters: TwoClusters, place: str) -> None:
    world = clusters.world
    getattr(clusters, place)()
    says = r"TIDEGATE_KAFKA_SHOP is not set.*`connection: shop`.*`tidegate_kafka_shop`"
    with pytest.raises(SettingsInvalid, match=says):
        plan_batch(clusters.app(TIDEGATE_KAFKA_SHOP=""), world.pipeline, Trigger("r", NOW_MS))
    assert world.app.ledger.open_plan(world.stream) is None


def test_connection_to_another_cluster_halts(clusters: TwoClusters) -> None:
    world = clusters.world
    world.stock(1)
    world.run()
    elsewhere = clusters.app(TIDEGATE_KAFKA=clusters.secured.bootstrap_servers)
    with pytest.raises(TopicRecreated, match="connection leads there by mistake"):
        plan_batch(elsewhere, world.pipeline, Trigger("r", NOW_MS))
    clusters.source_in_shop()  # under another name it is the same
    with pytest.raises(TopicRecreated):
        plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS))
    same = clusters.app(TIDEGATE_KAFKA_SHOP=world.servers)
    world.stock(0)
    world.app = same
    world.run()
    assert world.published() == {key_of(): [True, False]}


def test_lost_progress_is_found_in_the_sinks_cluster(clusters: TwoClusters) -> None:
    world = clusters.world
    clusters.sink_in_shop()
    for quantity in (1, 0):
        world.stock(quantity)
        world.run()
    clusters.admin(lambda admin: admin.delete_topics([PROGRESS_TOPIC]))
    world.stock(1)
    with pytest.raises(ProgressLost):
        world.run()
    result = CliRunner().invoke(
        cli, ["recover", "availability", "--choose", "restore-progress", "--yes"], env=clusters.environment
    )
    assert "it has batches up to 2; sent again: 3" in result.output
    assert clusters.published() == {key_of(): [True, False, True]}


def test_commands_report_both_clusters(clusters: TwoClusters) -> None:
    world = clusters.world
    clusters.source_in_shop()
    World.stock(_Elsewhere(world, clusters.secured.bootstrap_servers), 1)
    world.run()
    World.stock(_Elsewhere(world, clusters.secured.bootstrap_servers), 0, 1)

    def rows(*arguments: str) -> Any:
        result = CliRunner().invoke(cli, [*arguments, "--json"], env=clusters.environment)
        return json.loads(result.stdout)

    (row,) = rows("status")
    assert row["lag"] == 2
    assert [finding for finding in rows("doctor", "availability") if finding["ok"] == "WRONG"] == []
    (explained,) = explain(world.app, world.stream, key_of(), world.open_session)
    assert explained.plan.seq == 1
    assert explained.events
