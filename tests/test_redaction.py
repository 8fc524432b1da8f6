"""No message shows a secret of a URL."""

from __future__ import annotations

import traceback

import pytest
from sqlalchemy import make_url

from tidegate.errors import LedgerUnavailable, SettingsInvalid, SinkUnavailable, TidegateError
from tidegate.kafka.config import KafkaConfig
from tidegate.ledger import Ledger, migrate_database
from tidegate.redaction import redacted, secrets_of, shown_url
from tidegate.settings import Settings
from tidegate.sinks.sql.database import Database

CANARY = "hunter2"
AT = "127.0.0.1:1/db"
URLS = [
    f"postgresql+psycopg://tide:{CANARY}@{AT}",
    f"postgresql+psycopg://tide@{AT}?password={CANARY}",
    f"postgresql+psycopg://tide@{AT}?sslmode=verify-full&sslkey=/k&sslpassword={CANARY}",
    f"postgresql+psycopg://tide@{AT}?password={CANARY}&password={CANARY}",
    f"postgresql+psycopg://tide@{AT}?sslmode={CANARY}&password={CANARY}",
]


def shown_by(error: TidegateError) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_shown_without_its_secrets(url: str) -> None:
    shown = shown_url(make_url(url.replace(f"sslmode={CANARY}", "sslmode=disable")))
    assert CANARY not in shown
    assert "***" in shown
    assert "127.0.0.1" in shown


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("opens", [Ledger.open, Ledger.open_for_reading, migrate_database])
def test_an_unreachable_ledger_shows_no_secret(url: str, opens: object) -> None:
    assert callable(opens)
    with pytest.raises(LedgerUnavailable) as caught:
        opens(url)
    assert CANARY not in shown_by(caught.value)


@pytest.mark.parametrize("url", URLS)
def test_an_unreachable_sink_shows_no_secret(url: str) -> None:
    with (
        Database(url, "TIDEGATE_SQL") as database,
        pytest.raises(TidegateError) as caught,
        database.transaction(),
    ):
        pass
    assert isinstance(caught.value, SinkUnavailable)
    assert CANARY not in shown_by(caught.value)


@pytest.mark.parametrize("variable", ["TIDEGATE_LAKE", "TIDEGATE_DATA_DOCS"])
def test_a_place_with_a_password_is_refused(variable: str) -> None:
    with pytest.raises(SettingsInvalid, match=variable) as caught:
        Settings.from_environment({variable: f"s3://key:{CANARY}@bucket/lake"})
    assert CANARY not in shown_by(caught.value)


def test_a_secret_within_another_is_hidden() -> None:
    assert redacted("say hunter2-long and hunter2", ["hunter2", "hunter2-long"]) == "say *** and ***"
    assert secrets_of(make_url("sqlite:////x.db")) == []


def test_kafka_hides_a_secret_within_another() -> None:
    config = KafkaConfig({"sasl.password": "hunter2", "ssl.key.password": "hunter2-long"})
    assert config.redacted("said hunter2-long") == "said ***"
