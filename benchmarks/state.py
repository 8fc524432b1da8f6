"""What a key costs on disk: the state that one real batch of `tidegate run` writes.

`python -m benchmarks.state --help`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import click

from benchmarks.events import Load, send
from benchmarks.figures import show_json, show_table, teller
from benchmarks.measure import run_measured
from benchmarks.place import PIPELINE, SOURCE, ledger_url, running, write_stage
from benchmarks.programs import TIDEGATE, require_equal
from tidegate.ledger import Ledger, Stream

_STAGE = "state"
# 256 hexadecimal digits that depend on the event: hardly anything in them repeats
_WIDE = "concat({})".format(", ".join(f"sha2(concat(storeId, id, quantity, {n}), 256)" for n in range(4)))
STATES = {
    "boolean, `state: value`": ('isAvailable: "quantity > 0"', "value"),
    "boolean, `state: hash`": ('isAvailable: "quantity > 0"', "hash"),
    "256 characters, `state: value`": (f'description: "{_WIDE}"', "value"),
    "256 characters, `state: hash`": (f'description: "{_WIDE}"', "hash"),
}


@dataclass(frozen=True)
class Size:
    """The state of so many keys."""

    state: str
    keys: int
    bytes: int

    @property
    def bytes_per_key(self) -> float:
        return self.bytes / self.keys


def measure_sizes(keys: int, master: str, say: Callable[[str], None]) -> list[Size]:
    """One event of each key, read by one batch for each kind of state. Raises ResultWrong."""
    load = Load(events=keys, keys=keys, in_turn=True)
    sizes = []
    with running(load.partitions, master) as (home, env):
        say(f"sending {keys:,} events")
        send(env["TIDEGATE_KAFKA"], SOURCE, load)
        for generation, (name, (selected, state_form)) in enumerate(STATES.items(), start=1):
            say(name)
            emit = f"{{on: change, equal: exact, state: {state_form}}}"
            stage = f"{{name: {_STAGE}, select: {{{selected}}}, reduce: latest, emit: {emit}}}"
            write_stage(home, generation, stage)
            run_measured([TIDEGATE, "run", PIPELINE], env, home / "work")
            metrics = Ledger.open(ledger_url(home)).metrics(Stream(PIPELINE, generation), 1)
            require_equal(f"keys in the state, {name}", metrics[_STAGE, "state-rows"], keys)
            sizes.append(Size(name, keys, int(metrics[_STAGE, "state-bytes"])))
            say(f"{sizes[-1].bytes_per_key:,.1f} bytes per key")
    return sizes


def _shown(size: Size) -> dict[str, Any]:
    return {
        "state": size.state,
        "keys": f"{size.keys:,}",
        "MB": f"{size.bytes / 1e6:,.1f}",
        "bytes per key": f"{size.bytes_per_key:,.1f}",
    }


@click.command()
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--master", default="local[*]", show_default=True, help="Spark's.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(keys: int, master: str, json_wanted: bool) -> None:
    """Measure the bytes per key of the state on disk."""
    sizes = measure_sizes(keys, master, teller())
    if json_wanted:
        show_json({"results": [asdict(size) | {"bytes_per_key": size.bytes_per_key} for size in sizes]})
    else:
        show_table([_shown(size) for size in sizes], "State on disk after one batch")


if __name__ == "__main__":
    main()
