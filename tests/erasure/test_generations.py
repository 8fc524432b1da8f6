"""Erasure in two generations: each loses the key, and only the one in charge tells sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.erasure.canary import traces_of
from tests.generations.two_generations import Beside
from tidegate.erasure import erase, plan_erasure, requested_keys, steps
from tidegate.errors import Halted
from tidegate.generations import begin_from
from tidegate.ledger import Erasure

KEY = "canary-4711"


def erased(beside: Beside) -> dict[int, Erasure]:
    app = beside.old.app
    planned = plan_erasure(app, "visitors", requested_keys(app, "visitors", None, [KEY]))
    certificates = erase(app, planned, "tester", lambda _: None)
    return {certificate.stream.generation: certificate for certificate in certificates}


def test_every_generation_loses_the_key(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "home")
    beside.decide(beside.old, 3, [(KEY, 1), ("a", 3)])
    beside.fill([(KEY, 10), ("c", 30)])
    certificates = erased(beside)
    assert [certificates[number].rows["outbox"] for number in (1, 2)] == [4, 2]
    assert traces_of(tmp_path, [KEY]) == {KEY: []}
    assert [row[2] for row in beside.sent()] == ["a", "b", "a", "a"]
    beside.promote(beside.new)
    assert ("visitors/2", 3, "c", 30) in beside.sent()


def test_generation_in_charge_deletes_what_others_sent(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "home")
    beside.decide(beside.old, 3, [(KEY, 1)])
    beside.fill([("c", 30)])
    beside.promote(beside.new)
    assert KEY in [row[2] for row in beside.sent()]
    erased(beside)
    assert KEY not in [row[2] for row in beside.sent()]
    assert traces_of(tmp_path, [KEY]) == {KEY: []}


def test_generation_begins_with_no_erased_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Beside(tmp_path / "home")
    beside.decide(beside.old, 3, [(KEY, 1), ("a", 3)])
    rewrite = steps.rewrite

    def beside_it(*arguments: Any) -> Any:
        with pytest.raises(Halted, match="Erasure 1 of visitors/1 is not finished"):
            begin_from(beside.old.app, beside.new.pipeline, beside.old.stream, 3, "new")
        return rewrite(*arguments)

    monkeypatch.setattr(steps, "rewrite", beside_it)
    erased(beside)
    assert traces_of(tmp_path, [KEY]) == {KEY: []}


def test_generation_that_begins_meanwhile_is_erased(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "home")
    beside.decide(beside.old, 3, [(KEY, 1), ("a", 3)])
    app = beside.old.app
    planned = plan_erasure(app, "visitors", requested_keys(app, "visitors", None, [KEY]))
    begin_from(app, beside.new.pipeline, beside.old.stream, 3, "new")
    with pytest.raises(Halted, match="visitors/2 has got its first batch meanwhile"):
        erase(app, planned, "me", lambda _: None)
    erase(app, plan_erasure(app, "visitors", None), "me", lambda _: None)
    assert traces_of(tmp_path, [KEY]) == {KEY: []}
