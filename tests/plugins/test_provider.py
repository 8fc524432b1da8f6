"""The provider in Airflow: a connection type and its form."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from tests.waits import give_up_soon

pytestmark = pytest.mark.airflow


def test_airflow_takes_the_provider_s_description() -> None:
    import airflow

    (entry,) = distribution("tidegate").entry_points.select(group="apache_airflow_provider")
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    info = entry.load()()
    assert list(Draft7Validator(schema).iter_errors(info)) == []
    assert info["package-name"] == distribution("tidegate").name


def test_connection_type_has_a_form_and_hook() -> None:
    from airflow.providers_manager import ProvidersManager

    from tidegate_airflow.provider import get_provider_info

    manager = ProvidersManager()
    hook = manager.hooks["tidegate_kafka"]
    assert hook is not None
    assert (hook.hook_name, hook.connection_testable) == ("Kafka (tidegate)", True)
    behaviour = manager.field_behaviours["tidegate_kafka"]
    assert behaviour["relabeling"]["host"] == "Bootstrap server"
    fields = {name for name in manager.connection_form_widgets if name.startswith("extra__tidegate_kafka__")}
    names = get_provider_info()["connection-types"][0]["conn-fields"]
    assert fields == {f"extra__tidegate_kafka__{name}" for name in names}


def test_form_fields_become_connection_properties() -> None:
    from tidegate.kafka.properties import PROPERTIES
    from tidegate_airflow.provider import get_provider_info

    (kafka,) = get_provider_info()["connection-types"]
    assert kafka["conn-fields"].keys() <= PROPERTIES.keys()
    assert not [name for name in kafka["conn-fields"] if PROPERTIES[name].is_secret]


def test_a_field_that_was_left_empty_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.hook import KafkaHook

    extra = {"security.protocol": None, "sasl.mechanism": "", "client.id": "me"}
    stored = {"conn_type": "tidegate_kafka", "host": "kafka", "port": 9093, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TIDEGATE_KAFKA", json.dumps(stored))
    assert KafkaHook().get_conn().config.properties == {"bootstrap.servers": "kafka:9093", "client.id": "me"}


@pytest.mark.broker
def test_the_form_s_button_asks_the_broker(broker: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.hook import KafkaHook
    from tidegate_dev.broker import KafkaBroker

    assert isinstance(broker, KafkaBroker)
    stored = {"conn_type": "tidegate_kafka", "extra": {"bootstrap.servers": broker.bootstrap_servers}}
    monkeypatch.setenv("AIRFLOW_CONN_TIDEGATE_KAFKA", json.dumps(stored))
    good, message = KafkaHook().test_connection()
    assert (good, message.startswith("A broker answers.")) == (True, True)


def test_a_broker_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.hook import KafkaHook

    give_up_soon(monkeypatch, 2)
    monkeypatch.setenv(
        "AIRFLOW_CONN_TIDEGATE_KAFKA", '{"conn_type": "tidegate_kafka", "host": "127.0.0.1", "port": 1}'
    )
    good, message = KafkaHook().test_connection()
    assert not good
    assert "127.0.0.1:1" in message
