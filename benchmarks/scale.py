"""What a cluster needs for a load, from the unit costs of measured rows. See docs/scale.md.

`python -m benchmarks.scale --help`
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.figures import show_json, show_table
from benchmarks.results import RUNS, Saved, load_rows
from benchmarks.table import ENTRIES
from tidegate.sinks.outbox import SHARD_EMISSIONS

SMALL, LARGE, STATE = "10m", "30m", "large-state"
"""The rows that costs come from: two batches of the same keys; one on a large state and on a small one."""

USE = 0.5
"""So much of its interval a batch may take: the rest is for what nobody has planned."""

_MINUTE = 60


@dataclass(frozen=True)
class Costs:
    """The costs of `tidegate run` on the machine of the rows.

    `per_event` and `per_key` are processor seconds, for a record and for a key of the state that a batch
    looks through; `per_check` and `per_message` are seconds of one process for an emission, checked and sent.
    `emitted` is how many emissions there were by records.
    """

    per_event: float
    per_key: float
    per_check: float
    per_message: float
    emitted: float

    @classmethod
    def from_rows(cls, rows: Sequence[Saved]) -> Costs:
        """Compute the costs from the differences within pairs of batches: the fixed cost of a batch cancels
        out."""
        small, large = _turns(rows, SMALL), _turns(rows, LARGE)
        on_many, on_few = _turns(rows, STATE), _turns(rows, STATE, beside=True)
        events = _events(rows, LARGE) - _events(rows, SMALL)
        emissions = _median(large, _emitted) - _median(small, _emitted)
        keys = _keys(rows, beside=False) - _keys(rows, beside=True)
        return cls(
            per_event=(_median(large, _cpu) - _median(small, _cpu)) / events,
            per_key=max(_median(on_many, _cpu) - _median(on_few, _cpu), 0.0) / keys,
            per_check=(_median(large, _checking) - _median(small, _checking)) / emissions,
            per_message=(_median(large, _publishing) - _median(small, _publishing)) / emissions,
            emitted=emissions / events,
        )


@dataclass(frozen=True)
class Need:
    """The needs of one batch: its events, the processor seconds for them, for the state and for messages that
    tasks send, and the seconds in which one process checks, and publishes what is too little for tasks.

    `cores` is the number with which the batch takes USE of its interval; None: no number is enough.
    """

    interval_s: int
    events: int
    of_events: float
    of_state: float
    of_messages: float
    alone: float
    cores: int | None


def need(costs: Costs, keys: float, events_per_s: float, interval_s: int, pipelines: int = 1) -> Need:
    """Return the needs of a batch at each interval, on cores like the measured ones, in each of the pipelines
    that share keys and events."""
    events = round(events_per_s * interval_s / pipelines)
    of_events, of_state = events * costs.per_event, keys / pipelines * costs.per_key
    emissions = events * costs.emitted
    alone, of_messages = emissions * costs.per_check, emissions * costs.per_message
    if emissions < 2 * SHARD_EMISSIONS:  # one process sends them
        alone, of_messages = alone + of_messages, 0.0
    left = USE * interval_s - alone
    cores = math.ceil((of_events + of_state + of_messages) / left) if left > 0 else None
    return Need(interval_s, events, of_events, of_state, of_messages, alone, cores)


def _turns(rows: Sequence[Saved], name: str, beside: bool = False) -> list[dict[str, Any]]:
    """The runs of a row's measured program, or of what is beside it."""
    row = _row(rows, name)
    program = row["programs"][-1 if beside else 0]
    return [turn["run"] for turn in row["turns"] if turn["program"] == program]


def _row(rows: Sequence[Saved], name: str) -> Saved:
    for row in rows:
        if row["name"] == name:  # of several with this name the first is of batches
            return row
    raise click.ClickException(f"There is no row {name}. Run `python -m benchmarks.table {name} --save …`.")


def _events(rows: Sequence[Saved], name: str) -> int:
    """Count the records of the batch of a row, which has its bound only if it had its own load."""
    if _row(rows, name)["bound"] is None:
        raise click.ClickException(f"The row {name} was measured with another load than its own.")
    return ENTRIES[name].load.events


def _keys(rows: Sequence[Saved], beside: bool) -> int:
    """The keys of the state, which the programs of that row are named after."""
    name = _row(rows, STATE)["programs"][-1 if beside else 0]
    return int(name.partition(" ")[0].replace(",", ""))


def _median(runs: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median(map(value, runs))


def _cpu(run: dict[str, Any]) -> float:
    return float(run["usage"]["cpu_seconds"])


def _emitted(run: dict[str, Any]) -> float:
    return float(run["emitted"])


def _checking(run: dict[str, Any]) -> float:
    return float(run["steps"]["validate"])


def _publishing(run: dict[str, Any]) -> float:
    return float(run["steps"]["publish"])


def _shown(batch: Need) -> dict[str, Any]:
    return {
        "a batch every": f"{batch.interval_s} s",
        "records": f"{batch.events:,}",
        "processor seconds, records": f"{batch.of_events:,.0f}",
        "state": f"{batch.of_state:,.0f}",
        "messages": f"{batch.of_messages:,.0f}",
        "in one process, s": f"{batch.alone:,.0f}",
        "cores": "no number is enough" if batch.cores is None else f"{batch.cores:,}",
    }


@click.command()
@click.argument("runs", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=RUNS)
@click.option("--keys", default=1e9, show_default=True, help="Of the state.")
@click.option("--events", default=1e6, show_default=True, help="Per second.")
@click.option("--pipelines", default=1, show_default=True, help="That share both.")
@click.option(
    "--every",
    multiple=True,
    type=int,
    default=[_MINUTE, 5 * _MINUTE, 15 * _MINUTE],
    help="Seconds from batch to batch.",
)
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(
    runs: Path, keys: float, events: float, pipelines: int, every: tuple[int, ...], json_wanted: bool
) -> None:
    """Say what batches of a load need, by what RUNS says that records, keys and emissions cost."""
    costs = Costs.from_rows(load_rows(runs))
    needs = [need(costs, keys, events, interval, pipelines) for interval in every]
    if json_wanted:
        show_json({"costs": vars(costs), "needs": [vars(batch) for batch in needs]})
        return
    show_table(
        [
            {"costs": "of a record, processor µs", "": f"{costs.per_event * 1e6:.2f}"},
            {"costs": "of a key of the state, processor µs", "": f"{costs.per_key * 1e6:.2f}"},
            {"costs": "of an emission, checked, µs", "": f"{costs.per_check * 1e6:.2f}"},
            {"costs": "of an emission, sent, µs", "": f"{costs.per_message * 1e6:.2f}"},
            {"costs": "emissions by records", "": f"{costs.emitted:.3f}"},
        ],
        "Measured",
    )
    title = f"{keys:,.0f} keys, {events:,.0f} events per second: each of {pipelines} pipelines"
    show_table([_shown(batch) for batch in needs], title)


if __name__ == "__main__":
    main()
