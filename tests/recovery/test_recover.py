"""`tidegate recover`: it shows before it acts, acts only on --yes, and the ledger records each use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tests.recovery.commands import recover, shown
from tidegate.cli.commands.recover import CHOICES
from tidegate.errors import LeaseHeld, SinkRefused
from tidegate.ledger import LeasedLedger
from tidegate.recovery import REMEDIES, Proposal, Situation, UnknownCause, carry_out, find_proposals


@pytest.fixture
def failed(tmp_path: Path) -> Committed:
    """A stream whose second batch is planned, and fails in validate."""
    committed = Committed(tmp_path, "  - {kind: table}")
    committed.commit(1, {"first": [], "second": [("1", 1)]})
    committed.publish(1)
    committed.compute(2, {"first": [], "second": [("2", 1)]})
    committed.lease.note_failure(2, "validate", SinkRefused("The column m is too narrow", "Widen it."))
    committed.lease.release()
    return committed


def test_the_command_knows_each_remedy() -> None:
    assert tuple(remedy.name for remedy in REMEDIES) == CHOICES


def test_recover_names_cause_and_remedy_only(failed: Committed) -> None:
    result = recover(failed.environment, "visitors")
    assert result.exit_code == 4
    assert "drop-plan: Batch 2 failed in validate" in result.output
    assert "The column m is too narrow" in result.output
    assert "- Batch 2 of visitors/1 is forgotten" in result.output
    assert "To do it: tidegate recover visitors --choose drop-plan --generation 1 --yes" in result.output
    assert failed.app.ledger.open_plan(failed.stream) is not None
    assert failed.app.ledger.recoveries(failed.stream) == []


def test_choice_without_yes_only_shows_its_plan(failed: Committed) -> None:
    result = recover(failed.environment, "visitors", "--choose", "drop-plan")
    assert result.exit_code == 4
    assert "- Batch 2 of visitors/1 is forgotten" in result.output
    assert failed.app.ledger.open_plan(failed.stream) is not None


def test_choice_with_yes_acts_and_is_recorded(failed: Committed) -> None:
    result = recover(failed.environment, "visitors", "--choose", "drop-plan", "--yes", "--by", "ada")
    assert result.exit_code == 0
    assert result.output == "Batch 2 is forgotten; the next run plans it anew.\n"
    assert failed.app.ledger.open_plan(failed.stream) is None
    (use,) = failed.app.ledger.recoveries(failed.stream)
    assert (use.remedy, use.decided_by) == ("drop-plan", "ada")
    assert use.decided_at > 0
    assert use.cause.startswith("Batch 2 failed in validate")
    assert use.outcome == ("Batch 2 is forgotten; the next run plans it anew.",)
    document = shown(failed.environment, "visitors", "--choose", "drop-plan")
    assert document["findings"] == document["causes"] == document["done"] == []
    assert [row["remedy"] for row in document["used"]] == ["drop-plan"]


def test_choice_without_its_cause_does_nothing(failed: Committed) -> None:
    recover(failed.environment, "visitors", "--choose", "drop-plan", "--yes")
    again = recover(failed.environment, "visitors", "--choose", "drop-plan", "--yes")
    assert (again.exit_code, again.output) == (
        0,
        "visitors/1 needs no remedy drop-plan: its cause is not there.\n",
    )
    assert len(failed.app.ledger.recoveries(failed.stream)) == 1


def test_yes_without_a_choice_is_refused(failed: Committed) -> None:
    result = recover(failed.environment, "visitors", "--yes")
    assert result.exit_code == 2
    assert "--yes goes with --choose" in result.output


def test_failed_use_is_recorded_with_its_error(failed: Committed) -> None:
    failed.app.ledger.acquire(failed.stream, "another run")
    result = recover(failed.environment, "visitors", "--choose", "drop-plan", "--yes")
    assert isinstance(result.exception, LeaseHeld)
    (use,) = failed.app.ledger.recoveries(failed.stream)
    assert use.outcome[0].startswith("Failed: LeaseHeld: visitors/1 is being worked on by another run")


def test_a_stream_is_found_without_its_file(failed: Committed) -> None:
    failed.file.unlink()
    assert shown(failed.environment, "visitors", "--choose", "drop-plan")["generation"] == 1
    refused = recover(failed.environment, "visitors", "--generation", "7")
    assert "no generation 7 of a pipeline visitors" in str(refused.exception)


class _Broken:
    name = "broken"

    def propose(self, situation: Situation) -> Proposal | None:
        raise SinkRefused("It cannot be told", "Look.")


class _Other:
    name = "other"

    def propose(self, situation: Situation) -> Proposal | None:
        return Proposal(self.name, "It is so.", ("It is done.",), lambda: ("It was done.",))


def test_undecided_remedy_hides_no_other(failed: Committed) -> None:
    situation = Situation(failed.app, failed.stream)
    first, second = find_proposals(situation, [_Broken(), _Other()])
    assert isinstance(first, UnknownCause)
    assert isinstance(second, Proposal)
    chosen = replace(situation, options=replace(situation.options, choice="broken"))
    with pytest.raises(SinkRefused):
        list(find_proposals(chosen, [_Broken(), _Other()]))


def test_the_record_of_a_use_outlives_the_generation(failed: Committed) -> None:
    situation = Situation(failed.app, failed.stream)
    (proposal,) = find_proposals(situation, [_Other()])
    assert isinstance(proposal, Proposal)
    assert carry_out(situation, proposal, "ada") == ("It was done.",)
    failed.app.ledger.open_generation(replace(failed.stream, generation=2), in_charge=2)
    lease: LeasedLedger = failed.app.ledger.acquire(failed.stream, "drop")
    lease.drop()
    assert [use.remedy for use in failed.app.ledger.recoveries(failed.stream)] == ["other"]


def test_unexamined_part_is_reported_with_its_reason(failed: Committed) -> None:
    output = recover(failed.environment, "visitors").output
    assert "accept-gap: whether it can help is not known, for tidegate could not look: " in output
    assert "TIDEGATE_KAFKA" in output
    assert "SettingsInvalid" not in output
