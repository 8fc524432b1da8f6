"""Programs that take turns: A B A B, so that a machine that grows slower does so for all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.figures import mib, show_table, spread, spread_text
from benchmarks.measure import Usage
from benchmarks.programs import Run

Say = Callable[[str], None]
Program = Callable[[int], Run]
"""Runs once, in the round of that number, from 1."""


@dataclass(frozen=True)
class Turn:
    """A program's run in a round."""

    program: str
    round: int
    run: Run


@dataclass(frozen=True)
class Row:
    """A row of the table: all turns, in the order in which they were taken.

    `programs` is the order of a round. The last is the one that the others are measured by.
    """

    title: str
    programs: tuple[str, ...]
    turns: tuple[Turn, ...]

    def usages(self, program: str) -> list[Usage]:
        """Return the usage of each run of a program."""
        return [turn.run.usage for turn in self.turns if turn.program == program]

    def seconds(self, program: str) -> list[float]:
        """Wall seconds of its runs."""
        return [usage.seconds for usage in self.usages(program)]

    def ratios(self, program: str) -> list[float]:
        """Its wall seconds by those of the last program, round by round."""
        return [ours / last for ours, last in self._pairs(program)]

    def ratio_of_medians(self, program: str) -> float:
        """The median of its wall seconds by that of the last program."""
        return statistics.median(self.seconds(program)) / statistics.median(self.seconds(self.programs[-1]))

    def beyond(self, program: str) -> list[float]:
        """Its wall seconds beyond those of the last program, round by round."""
        return [ours - last for ours, last in self._pairs(program)]

    def _pairs(self, program: str) -> list[tuple[float, float]]:
        return list(zip(self.seconds(program), self.seconds(self.programs[-1]), strict=True))


def take_turns(
    title: str,
    programs: Mapping[str, Program],
    rounds: int,
    say: Say,
    check: Callable[[int], None] = lambda _: None,
) -> Row:
    """Each program once per round, and after each round `check` of what they did in it."""
    turns = []
    for number in range(1, rounds + 1):
        for name, program in programs.items():
            say(f"{title}: {name}, round {number} of {rounds}")
            turns.append(Turn(name, number, program(number)))
        check(number)
    return Row(title, tuple(programs), tuple(turns))


def show_row(row: Row) -> None:
    """Two tables: the programs, each number as `min / median / max`; and every turn."""
    show_table([_summary(row, program) for program in row.programs], row.title)
    show_table([_turn(turn) for turn in row.turns], f"{row.title}: each turn")


def row_object(row: Row) -> dict[str, Any]:
    """Return a row and its results as an object for JSON."""
    return asdict(row) | {"results": {program: _result(row, program) for program in row.programs}}


def _result(row: Row, program: str) -> dict[str, Any]:
    return {
        "seconds": spread(row.seconds(program)),
        "ratio": spread(row.ratios(program)),
        "ratio_of_medians": row.ratio_of_medians(program),
        "seconds_beyond": spread(row.beyond(program)),
        "peak_tree_bytes": max(usage.peak_tree_bytes for usage in row.usages(program)),
    }


def _summary(row: Row, program: str) -> dict[str, Any]:
    usages = row.usages(program)
    shown = {
        "program": program,
        "wall seconds": spread_text(row.seconds(program), 2),
        "processor seconds": spread_text([usage.cpu_seconds for usage in usages]),
        "peak, all processes, MiB": spread_text([mib(usage.peak_tree_bytes) for usage in usages], 0),
    }
    if program == row.programs[-1]:
        return shown
    return shown | {
        f"wall / {row.programs[-1]}": spread_text(row.ratios(program), 2),
        "of medians": f"{row.ratio_of_medians(program):.2f}",
        "seconds beyond": spread_text(row.beyond(program), 2),
    }


def _turn(turn: Turn) -> dict[str, Any]:
    run, usage = turn.run, turn.run.usage
    return {
        "round": turn.round,
        "program": turn.program,
        "seconds": f"{usage.seconds:.2f}",
        "load by others": f"{usage.load:.2f}",
        "processor seconds": f"{usage.cpu_seconds:.1f}",
        "peak, MiB": f"{mib(usage.peak_tree_bytes):,.0f}",
        "read by workers, MB": f"{usage.worker_read_bytes / 1e6:,.1f}",
        "emitted": "" if run.emitted is None else f"{run.emitted:,}",
        "seconds of steps": ", ".join(f"{step} {seconds:.1f}" for step, seconds in run.steps.items()),
    }
