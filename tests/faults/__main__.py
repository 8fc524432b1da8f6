"""`python -m tests.faults`: the kill matrix. Each run is a history with a fault beside one without."""

from __future__ import annotations

import fnmatch
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from tests.faults.catalogue import NOT_OF_A_BATCH, all_cases, failpoint_names, joined, matrix, pairs
from tests.faults.fault import Case, case_text, parse_case
from tests.faults.pool import Pool
from tests.faults.worker import Result
from tests.memory import folder_in_memory
from tests.postgres import postgres_server
from tidegate.settings import Settings
from tidegate_dev.broker import KafkaBroker


@click.command()
@click.option("--jobs", default=3, help="Workers side by side, each with a Spark of its own.")
@click.option(
    "--databases",
    type=click.Choice(["both", "sqlite", "postgresql"]),
    default="both",
    help="Of ledger and SQL sink; both: every second worker has a PostgreSQL server's.",
)
@click.option(
    "--runs", "at_least", default=600, help="At least so many faults alone in a batch, if there are."
)
@click.option("--pairs", "pair_count", default=40, help="So many more with a second fault after the first.")
@click.option("--only", multiple=True, help="Only cases of this text, or of this pattern (with *).")
@click.option("--seed", default=0, help="Of the places of the faults, and of the pairs.")
@click.option("--list", "only_list", is_flag=True, help="Print the cases, run none.")
def main(
    jobs: int,
    databases: str,
    at_least: int,
    pair_count: int,
    only: tuple[str, ...],
    seed: int,
    only_list: bool,
) -> None:
    """Kill, lose, raise and pause at every failpoint; then see that nobody can tell."""
    began = time.monotonic()
    _keep_files_in_memory()
    home = Path(tempfile.mkdtemp(prefix="tidegate-faults-"))
    os.environ["SPARK_LOCAL_DIRS"] = str(home)  # what a killed JVM leaves is removed with all the rest
    jars = Settings.from_environment().home / "jars"
    (home / "jars").symlink_to(jars, target_is_directory=True)
    with ExitStack() as stack:
        servers = stack.enter_context(KafkaBroker(home)).bootstrap_servers
        urls: list[str | None] = [] if databases == "postgresql" else [None]
        if databases != "sqlite":
            urls.append(stack.enter_context(postgres_server()).url())
        shared = [[url] for url in itertools.islice(itertools.cycle(urls), jobs)]
        pool = stack.enter_context(Pool(home, servers, shared))
        possible = all_cases(pool.hits)
        cases = _chosen(possible, only) if only else matrix(possible, at_least, seed)
        if not only:
            cases = joined(pairs(pool.hits, possible, pair_count, seed) + cases, seed)
        if only_list:
            print("\n".join(map(case_text, cases)))
            results = []
        else:
            results = pool.run(cases, Progress(len(cases)))
    wrong = [result for result in results if result.wrong]
    if results:
        print(_table(results, (time.monotonic() - began) / 60))
    if not wrong:
        shutil.rmtree(home)
    too_few = bool(results) and not only and (len(_fired(results)) < at_least or bool(_missed(results)))
    sys.exit(1 if wrong or too_few else 0)


def _keep_files_in_memory() -> None:
    """Put the files of all processes there, where that is possible: they call fsync again and again."""
    if (memory := folder_in_memory()) is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


def _chosen(possible: list[Case], only: Sequence[str]) -> list[Case]:
    patterns = [text for text in only if "*" in text]
    named = [parse_case(text) for text in only if "*" not in text]
    return named + [case for case in possible if any(fnmatch.fnmatch(case_text(case), p) for p in patterns)]


class Progress:
    """Says what was done, and at once what went wrong."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._wrong = 0
        self._began = time.monotonic()

    def __call__(self, result: Result) -> None:
        self._done += 1
        self._wrong += bool(result.wrong)
        seconds_per_run = (time.monotonic() - self._began) / self._done
        print(
            f"{self._done}/{self._total}, {self._wrong} wrong, {seconds_per_run:.1f} s per run: "
            f"{result.case} {result.databases} {result.codes} {result.seconds} s",
            flush=True,
        )
        if result.wrong:
            print(f"  WRONG: {'; '.join(result.wrong)}\n  again: {again(result)}", flush=True)


def again(result: Result) -> str:
    """The command that runs a case again."""
    return f"python -m tests.faults --jobs 1 --databases {result.databases} --only '{result.case}'"


def _fired(results: Sequence[Result]) -> list[tuple[str, str]]:
    """(failpoint, action) of each fault that fired."""
    entries = [entry for result in results for entry in result.fired]
    return [
        (name, action.partition("@")[0]) for name, _, action in (entry.partition("=") for entry in entries)
    ]


def _is_pair(result: Result) -> bool:
    case = parse_case(result.case)
    return len({fault.half for fault in case}) < len(case)


def _missed(results: Sequence[Result]) -> list[str]:
    return sorted(failpoint_names() - NOT_OF_A_BATCH - {name for name, _ in _fired(results)})


def _table(results: Sequence[Result], minutes: float) -> str:
    actions = Counter(action for _, action in _fired(results))
    stores = Counter(result.databases for result in results)
    rows = {
        "failpoints": len({name for name, _ in _fired(results)}),
        "not met": ", ".join(_missed(results)) or "none",
        "not of a batch": ", ".join(sorted(NOT_OF_A_BATCH)),
        "runs": len(results),
        "of them with a second fault in a recovery": sum(map(_is_pair, results)),
        "faults fired": sum(len(result.fired) for result in results),
        "by action": ", ".join(f"{name} {count}" for name, count in sorted(actions.items())),
        "by databases": ", ".join(f"{name} {count}" for name, count in sorted(stores.items())),
        "differences": sum(bool(result.wrong) for result in results),
        "minutes": f"{minutes:.1f}",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


if __name__ == "__main__":
    main()
