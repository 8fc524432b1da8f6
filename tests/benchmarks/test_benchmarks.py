"""The benchmarks at a tiny scale: they run, check what they measure, and leave nothing behind."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.events import Load, draw
from benchmarks.kernel import compare
from benchmarks.measure import CommandFailed, run_measured
from benchmarks.programs import ResultWrong
from benchmarks.publication import measure
from benchmarks.rates import all_measured
from benchmarks.rates import measure as measure_rate
from benchmarks.strategies import STRATEGIES

from benchmarks import decode
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.kernel.options import options_of
from tidegate.kernel.strategies import OF_FIELDS
from tidegate.kernel.strategies import STRATEGIES as STRATEGIES_OF_EMIT
from tidegate.kernel.windows import WINDOWS

KINDS = ("emit", "field", "window", "aggregate")
_HOLD_64_MIB = "held = bytearray(64 << 20); import time; time.sleep(1)"
_LEAVE_A_CHILD = "import subprocess; open('pid', 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"


def _ignore(_: str) -> None:
    pass


def test_seed_determines_events_and_later_loads_differ() -> None:
    first, later = Load(events=1_000, keys=50), Load(events=1_000, keys=50, first=1_000)
    assert list(draw(first)) == list(draw(first))
    assert [begin for begin, _, _ in draw(later)] == [1_000]
    assert next(draw(later))[1:] != next(draw(first))[1:]


def test_memory_of_all_processes_is_counted(tmp_path: Path) -> None:
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_HOLD_64_MIB!r}])"
    usage, _ = run_measured([sys.executable, "-c", f"{child}; {_HOLD_64_MIB}"], os.environ, tmp_path)
    assert usage.seconds > 1
    assert usage.peak_tree_bytes > 128 << 20 > usage.peak_process_bytes > 64 << 20


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measure._LEAVE_S", 0.1)


@pytest.mark.usefixtures("impatient")
def test_what_a_command_leaves_running_is_ended(tmp_path: Path) -> None:
    run_measured([sys.executable, "-c", _LEAVE_A_CHILD], os.environ, tmp_path)
    assert not _lives(tmp_path)


@pytest.mark.usefixtures("impatient")
def test_processes_of_a_failed_command_are_ended(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="ended with 3"):
        run_measured([sys.executable, "-c", f"{_LEAVE_A_CHILD}; raise SystemExit(3)"], os.environ, tmp_path)
    assert not _lives(tmp_path)


def _lives(folder: Path) -> bool:
    """Whether the child still runs; an orphan that nobody collected yet does not."""
    status = Path(f"/proc/{(folder / 'pid').read_text()}/status")
    return status.exists() and "zombie" not in status.read_text()


@pytest.mark.parametrize("name", STRATEGIES)
def test_kernel_and_loop_emit_the_same(name: str) -> None:
    # many keys have few events each: only such keys are silent for a time
    keys = 100_000 if name == "quiet" else 2_000
    (compared,) = compare(Load(events=20_000, keys=keys), 1, _ignore, [name])
    everything = name.startswith("update")
    assert (compared.emitted == 20_000) if everything else (10 < compared.emitted < 10_000)
    assert all(run.cpu > 0 for run in (*compared.decided, *compared.naive))


def test_loop_unlike_the_kernel_is_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = replace(STRATEGIES["change, exact"], loop=STRATEGIES["update"].loop)
    monkeypatch.setitem(STRATEGIES, "change, exact", everything)
    with pytest.raises(ResultWrong, match="differ"):
        compare(Load(events=1_000, keys=100), 1, _ignore, ["change, exact"])


def test_rates_cover_all_registries() -> None:
    measured = list(all_measured())
    names = {kind: {part.name for part in measured if part.kind.startswith(kind)} for kind in KINDS}
    assert names["emit"] == {*STRATEGIES_OF_EMIT, "any"}
    assert names["window"] == {options_of(window)[0].written for window in WINDOWS}
    assert len(names["aggregate"]) == len(FUNCTIONS) + 1
    assert len(names["field"]) == len(OF_FIELDS)
    for part in measured:
        assert measure_rate(part, Load(events=300, keys=3_000)).per_second > 0


def test_keys_have_equal_numbers_of_events() -> None:
    loads = list(draw(Load(events=100, keys=50, in_turn=True)))
    assert [product for _, products, _ in loads for product in products] == [*range(50), *range(50)]


@pytest.mark.broker
@pytest.mark.long
def test_outbox_is_published_by_tidegate_and_peer() -> None:
    result = measure(40, 2, repeat=1, say=_ignore)
    assert [run.program for run in result.runs] == ["tidegate", "tidegate, `headers: true`", "plain"]
    assert result.ratios("plain") == [1.0]
    assert result.ratios("tidegate") == pytest.approx([result.runs[2].seconds / result.runs[0].seconds])


@pytest.mark.heavy
def test_decoder_and_reference_loop_give_equal_rows() -> None:
    results = decode.compare(Load(events=20_000, keys=2_000), 1, _ignore)
    assert len(results) == 9
    assert all(seconds > 0 for result in results for seconds in (*result.columns, *result.loop))
