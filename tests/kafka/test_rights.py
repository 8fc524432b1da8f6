"""The rights that docs/kafka.md lists are enough on a broker with an authorizer; a missing one is named."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka import KafkaProducer
from tests.batch.committed import Committed
from tests.secured import PASSWORD, RESTRICTED, SecuredBroker
from tests.sinks.kafka.sending import SEVERAL
from tidegate.app import App
from tidegate.batch import Trigger, check_progress, draft, validate_batch
from tidegate.errors import SettingsInvalid, TopicMissing
from tidegate.inspect.examine import FindingState, examine_pipeline, examine_progress_topics
from tidegate.kafka.config import PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.records import Slice, read_slice

pytestmark = pytest.mark.broker
PAGE = Path(__file__).resolve().parents[2] / "docs" / "kafka.md"
SOURCE = "events"
ALL = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    f"User:{RESTRICTED}",
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class Rights:
    """A user with no rights but those that it is given, a pipeline of its own, and its topics."""

    def __init__(self, secured: SecuredBroker, folder: Path) -> None:
        self.admin = AdminClient({"bootstrap.servers": secured.bootstrap_servers, "log_level": 0})
        self.servers = secured.bootstrap_servers
        self.topic, self.dead = f"out-{uuid4().hex[:8]}", f"dead-{uuid4().hex[:8]}"
        login = {"sasl__mechanism": "PLAIN", "sasl__username": RESTRICTED, "sasl__password": PASSWORD}
        self.properties = secured.reached("LOGIN", **login)
        sinks = f"  - {{kind: kafka, topic: {self.topic}}}\nquarantine: {{topic: {self.dead}}}"
        self.batches = Committed(folder, sinks, kafka=json.dumps(self.properties))
        existing = self.admin.list_topics(timeout=60).topics
        new = [NewTopic(name, 1, 1) for name in (SOURCE, self.topic, self.dead) if name not in existing]
        for made in self.admin.create_topics(new).values():
            made.result()

    def listed(self) -> Iterator[AclBinding]:
        """Yield the rights that the page lists."""
        names = {"stock": SOURCE, "availability": self.topic, "stock-dead": self.dead}
        for line in re.findall(r"^\$ACLS (.*)$", PAGE.read_text(), re.MULTILINE):
            kind, name = re.findall(r"--(topic|transactional-id) (\S+)", line)[0]
            pattern = ResourcePatternType.PREFIXED if "prefixed" in line else ResourcePatternType.LITERAL
            resource = ResourceType.TOPIC if kind == "topic" else ResourceType.TRANSACTIONAL_ID
            for operation in re.findall(r"--operation (\S+)", line):
                yield self.right(operation, resource, names.get(name, name), pattern)

    def right(
        self,
        operation: str,
        resource: ResourceType,
        name: str,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> AclBinding:
        allowed = AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()]
        user = f"User:{RESTRICTED}"
        return AclBinding(resource, name, pattern, user, "*", allowed, AclPermissionType.ALLOW)

    def give(self, *rights: AclBinding) -> None:
        for given in self.admin.create_acls(list(rights)).values():
            given.result()
        self._await(lambda existing: existing.issuperset(rights))

    def take(self, *rights: AclBinding) -> None:
        filters = [
            AclBindingFilter(
                right.restype,
                right.name,
                right.resource_pattern_type,
                right.principal,
                right.host,
                right.operation,
                right.permission_type,
            )
            for right in rights
        ]
        for taken in self.admin.delete_acls(filters).values():
            taken.result()
        self._await(lambda existing: existing.isdisjoint(rights))

    def _await(self, is_so: Callable[[set[AclBinding]], bool]) -> None:
        """The broker answers before it applies them."""
        deadline = time.monotonic() + 300
        while not is_so(set(self.admin.describe_acls(ALL).result())):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def delete_progress(self) -> None:
        if PROGRESS_TOPIC in self.admin.list_topics(timeout=60).topics:
            for deleted in self.admin.delete_topics([PROGRESS_TOPIC], operation_timeout=60).values():
                deleted.result()

    def draft(self) -> None:
        """Draft a batch as a run, `plan` and `doctor` do before it is planned."""
        app = App.for_reading(self.batches.environment)
        draft(
            app,
            self.batches.pipeline,
            app.ledger.head(self.batches.stream),
            Trigger("now", clock_ms=0),
        )

    def read(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        at = producer.send(SOURCE, b"{}").get(timeout=60).offset
        producer.close()
        for _ in read_slice(KafkaConfig.from_dict(self.properties), Slice(SOURCE, 0, at, at + 1), 10.0):
            pass

    def publish(self) -> None:
        if self.batches.app.ledger.head(self.batches.stream).seq == 0:
            self.batches.commit(1, {"first": [], "second": SEVERAL})
        self.batches.publish(1)

    def validate(self) -> None:
        """The check of a batch that is computed and not decided."""
        batches = self.batches
        attempt = batches.app.ledger.attempt(batches.stream, 1)
        plan = batches.app.ledger.plan(batches.stream, 1)
        if plan is None or attempt is None:
            plan = batches.compute(1, {"first": [], "second": SEVERAL})
        validate_batch(batches.app, plan, "test")

    def examine(self) -> list[tuple[FindingState, str]]:
        """Return the findings of doctor."""
        app, pipeline = App.for_reading(self.batches.environment), self.batches.pipeline
        findings = [*examine_pipeline(app, "visitors", pipeline), *examine_progress_topics(app, [pipeline])]
        return [(finding.state, finding.text) for finding in findings]


@pytest.fixture
def rights(secured: SecuredBroker, tmp_path: Path) -> Iterator[Rights]:
    made = Rights(secured, tmp_path)
    made.delete_progress()
    yield made
    for taken in made.admin.delete_acls([ALL]).values():
        taken.result()


def test_the_rights_that_the_page_lists_are_enough(rights: Rights) -> None:
    rights.give(*rights.listed())
    rights.draft()
    assert [state for state, _ in rights.examine()] == [FindingState.OK]
    rights.read()
    rights.publish()
    check_progress(rights.batches.app, rights.batches.stream)


MISSING: dict[str, tuple[str, Callable[[Rights], None], str]] = {
    "source": (SOURCE, Rights.draft, "Describe on the topic events"),
    "output": ("{topic}", Rights.publish, "Describe on the topic {topic}"),
    "progress": (PROGRESS_TOPIC, Rights.publish, f"Describe on the topic {PROGRESS_TOPIC}"),
    "transactions, before the commit": (
        "tidegate-",
        Rights.validate,
        "Write on the transactional id tidegate-visitors-g1-kafka",
    ),
    "transactions": ("tidegate-", Rights.publish, "Write on the transactional id tidegate-visitors-g1-kafka"),
}


@pytest.mark.parametrize(("resource", "act", "names"), MISSING.values(), ids=MISSING)
def test_a_right_that_is_missing_is_named(
    rights: Rights, resource: str, act: Callable[[Rights], None], names: str
) -> None:
    rights.give(*(right for right in rights.listed() if right.name != resource.format(topic=rights.topic)))
    with pytest.raises(SettingsInvalid, match=names.format(topic=rights.topic)) as raised:
        act(rights)
    assert f"--allow-principal User:{RESTRICTED} --operation" in str(raised.value)
    rights.give(*rights.listed())
    act(rights)


WITHOUT: dict[str, tuple[str, str, Callable[[Rights], None]]] = {
    "Read of the source": (SOURCE, "Read", Rights.read),
    "Write to the output": ("{topic}", "Write", Rights.publish),
    "Create of progress": (PROGRESS_TOPIC, "Create", Rights.publish),
    "Write, before the commit": ("{topic}", "Write", Rights.validate),
    "Create, before the commit": (PROGRESS_TOPIC, "Create", Rights.validate),
}


@pytest.mark.parametrize(("topic", "operation", "act"), WITHOUT.values(), ids=WITHOUT)
def test_topic_without_read_right_names_the_operation(
    rights: Rights, topic: str, operation: str, act: Callable[[Rights], None]
) -> None:
    topic = topic.format(topic=rights.topic)
    rights.give(*rights.listed(), rights.right("Describe", ResourceType.TOPIC, topic))
    rights.take(rights.right(operation, ResourceType.TOPIC, topic))
    with pytest.raises(SettingsInvalid, match=f"{operation} on the topic {topic}"):
        act(rights)


def test_doctor_says_whose_settings_it_cannot_see(rights: Rights) -> None:
    rights.give(*rights.listed())
    with rights.batches.app.log(None) as log:
        log.ensure_progress_topic()
    for topic in (rights.topic, rights.dead, PROGRESS_TOPIC):
        rights.take(rights.right("DescribeConfigs", ResourceType.TOPIC, topic))
    hidden = [text for state, text in rights.examine() if state is FindingState.WAIT]
    for topic in (rights.topic, rights.dead, PROGRESS_TOPIC):
        assert [text for text in hidden if f"settings of the topic {topic} are not shown" in text]


def test_missing_topic_is_distinguished_from_an_invisible_one(rights: Rights) -> None:
    rights.give(rights.right("Describe", ResourceType.TOPIC, "absent"))
    with rights.batches.app.log(None) as log:
        with pytest.raises(TopicMissing):
            log.view("absent")
        with pytest.raises(SettingsInvalid, match="Describe on the topic hidden"):
            log.view("hidden")
