"""All failpoints, found in the source; where the history meets them; and the matrix that is made of both."""

from __future__ import annotations

import ast
import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.faults.fault import ACTIONS, PLAIN, Case, Fault, parse_case
from tests.faults.history import BATCHES, CONNECTED, CONNECTED_RICH, CONNECTED_SINGLE
from tests.faults.kernel import MET_BY_WORKERS, MET_IN_A_DRAIN
from tests.faults.steps import STEPS

SOURCE = Path(__file__).resolve().parents[2] / "include" / "tidegate"
_LEDGER_CALLS = ("_transaction", "_writing", "_fenced", "_rows", "_row", "_head_row")
_TABLE_KINDS = ("state", "outbox", "quarantine")

ELSEWHERE = {
    ("rich", 1, "plan"): {"plan.lookup": 1},
    ("rich", 2, "plan"): {"plan.lookup": 1},
    ("rich", 1, "compute"): {"compute.lookup": 2},
    ("rich", 2, "compute"): {"compute.lookup": 2},
    ("rich", 1, "validate"): dict.fromkeys(("validate.read", "ledger.quality", "ledger.add_quality"), 1),
    ("rich", 2, "validate"): dict.fromkeys(("validate.read", "ledger.quality", "ledger.add_quality"), 1),
    ("rich", 1, "publish"): {"publish.commit": 6, "ledger.set_sink_identity": 2, "ledger.add_publication": 4},
    ("rich", 2, "publish"): dict.fromkeys(
        ("sql.advance", "sql.write", "sql.commit", "ledger.add_publication"), 1
    ),
    ("doctor", 2, "gap"): {"ledger.accept_gap": 1},
    ("doctor", 2, "drop"): {"ledger.drop_plan": 1, "ledger.streams": 1},
    ("maintained", 2, "maintain"): {
        **dict.fromkeys(("compact.read", "compact.write", "maintenance.delete"), 2),
        **dict.fromkeys(("ledger.add_snapshot", "ledger.give_up", "ledger.head_at"), 1),
        "ledger.remove_batches": 1,
        **dict.fromkeys(
            ("ledger.known_names", "ledger.snapshots", "ledger.planned_specs", "ledger.open_lookups"), 1
        ),
        "ledger.rewrites": 1,
    },
    ("replayed", 2, "discard"): dict.fromkeys(
        ("ledger.resolutions", "manifest.write", "ledger.add_resolution", "ledger.acquire"), 1
    ),
    ("replayed", 2, "plan"): dict.fromkeys(
        ("ledger.resolutions", "ledger.expired", "manifest.write", "ledger.add_plan"), 1
    ),
    ("replayed", 2, "compute"): dict.fromkeys(
        ("compute.lookup", "compute.read", "compute.kernel", "compute.files", "ledger.add_attempt"), 1
    ),
    ("replayed", 2, "commit"): {"ledger.commit": 1},
    ("replayed", 2, "publish"): {"publish.commit": 1, "ledger.add_publication": 1},
    ("doctor", 2, "status"): {"ledger.lease_holder": 1, "ledger.streams": 1},
    ("tree", 1, "compute"): {"compute.kernel": 1, "compute.write_quarantine": 1},
    ("tree", 1, "publish"): {"publish.commit": 1},
    ("tree", 2, "plan"): {"plan.lookup": 1},
    ("tree", 2, "compute"): {
        **dict.fromkeys(("compute.lookup", "ledger.add_attempt"), 1),
        "compute.kernel": 3,
        **dict.fromkeys(("compute.write_state", "compute.write_outbox"), 2),
    },
    ("tree", 2, "commit"): {"ledger.commit": 1},
    ("tree", 2, "publish"): {"publish.commit": 2, "ledger.add_publication": 1},
    ("tree", 3, "compute"): {"compute.kernel": 1, "compute.files": 1},
    ("posted", 1, "validate"): {"http.reach": 1},
    ("posted", 1, "publish"): {
        **dict.fromkeys(("http.send", "ledger.set_sink_progress"), 3),
        **dict.fromkeys(("ledger.sink_progress", "ledger.add_publication"), 1),
    },
    ("posted", 2, "validate"): {"http.reach": 1},
    ("posted", 2, "commit"): {"ledger.commit": 1},
    ("posted", 2, "publish"): dict.fromkeys(("http.send", "ledger.set_sink_progress"), 2),
}
"""What the plain history does not meet: (history, batch, step) -> failpoint -> how often."""

TOLD_TO_PEOPLE = {
    "kafka.open_transactions",
    "ledger.batches",
    "ledger.charges",
    "ledger.current_batches",
    "ledger.failing_streams",
    "ledger.metric_groups",
    "ledger.metric_values",
    "ledger.newest_commits",
    "ledger.note_failure",
    "ledger.planned_versions",
    "ledger.published_after",
    "ledger.remove_failure",
    "ledger.removable_batches",
    "ledger.sinks_of",
    "ledger.stream_statuses",
}
"""What is only told to people: questions whose answers change nothing of a batch, which no history asks, and
the note of a failed step, which decides nothing, and which an undisturbed history does not make.
"""

OF_OLD_LEDGERS = {"ledger.migrate"}
"""A history begins with a ledger of the newest schema: `tests/ledger/test_ledger.py` meets it."""

OF_GENERATIONS = {
    "drop.delete",
    "ledger.begin_from",
    "ledger.drop",
    "ledger.is_dropped",
    "ledger.newest_publication",
    "ledger.open_generation",
    "ledger.origin",
    "ledger.promote",
    "ledger.promote.noted",
    "promote.write",
    "reused.read",
}
"""A history has one generation: `test_promotion.py`, `test_recompute.py` and the simulator meet these."""

OF_RETENTION = {"ledger.expire", "ledger.first_needed"}
"""A history is too short for it: `tests/maintenance/test_expiry.py` meets it."""

OF_RECOVERY = {
    *(
        "ledger.decide",
        "ledger.publishers",
        "ledger.send_again",
        "ledger.end_sending_again",
        "ledger.give_up_publication",
    ),
    *("ledger.forget", "sql.restart", "sql.restore", "sql.seal", "table.restart", "table.seal"),
    *("ledger.add_recovery", "ledger.end_recovery", "ledger.recoveries", "tables.remove"),
    *("ledger.add_promotions", "ledger.dropped_streams", "marks.adopt"),
}
"""No history loses what a sink has, or gives a batch up: `tests/recovery` and `tests/sinks/kafka` do."""

OF_ICEBERG = {
    *("iceberg.read_progress", "iceberg.create", "iceberg.write", "iceberg.commit", "iceberg.flush"),
    *("iceberg.restart", "iceberg.seal", "iceberg.erase", "iceberg.remove"),
    *("tables.expire", "tables.clean"),
}
"""No history has Iceberg tables: `tests/sinks/iceberg` and `tests/iceberg` fail at each of them."""

OF_CLICKHOUSE = {
    *("clickhouse.read_progress", "clickhouse.create", "clickhouse.insert", "clickhouse.progress"),
    *("clickhouse.restart", "clickhouse.seal", "clickhouse.erase"),
}
"""No history has a ClickHouse sink: `tests/sinks/clickhouse` fails at each of them."""

OF_REFUSED_ROWS = {"ledger.replace_files", "sql.trial", "validate.quarantine"}
"""No history has a table that refuses rows: `tests/batch/test_refused_rows.py` fails at each of them."""

OF_SHARDS = {"sql.load", "sql.move", "sql.drop"}
"""No history loads shards into a database: `tests/sinks/sql/test_shards.py` fails at each of them."""

OF_ERASURE = {
    *("erase.outbox", "erase.begin", "erase.rewrite", "erase.rewritten", "erase.tables", "erase.remove"),
    *("erase.docs", "ledger.begin_erasure", "ledger.point_to_rewritten", "ledger.remove_samples"),
    *("ledger.forget_keys", "ledger.vacuum", "ledger.end_erasure", "ledger.erasures", "sql.erase"),
    "table.erase",
}
"""No history erases a key: `tests/erasure` does."""

_OF_PEOPLE = TOLD_TO_PEOPLE | OF_RECOVERY | OF_ERASURE
_OF_SINKS = OF_ICEBERG | OF_CLICKHOUSE | OF_REFUSED_ROWS | OF_SHARDS
NOT_OF_A_BATCH = _OF_PEOPLE | OF_OLD_LEDGERS | OF_GENERATIONS | OF_RETENTION | _OF_SINKS

IN_A_SERVER = {
    CONNECTED: (1, 2, BATCHES),
    CONNECTED_RICH: (1, 2),
    CONNECTED_SINGLE: (1,),
}
"""The batches of each history that is computed in a server."""
LAST = {CONNECTED: 2, CONNECTED_RICH: 2, CONNECTED_SINGLE: 1}
"""The hit that a worker's failpoint has in the last stage's task."""

IN_A_RECOVERY = (
    "connected/1.compute:compute.files=hang_server_after@2+connected/1.compute:compute.session=lose_server_after@1",
    "connected/2.compute:compute.read=kill_client@1+connected/2.compute:compute.kernel=restart_server@2",
    "connected/3.compute:compute.kernel=lose_server@2+connected/3.compute:compute.files=hang_server@1",
    "connected_rich/1.compute:compute.files=lose_answer_after@2+connected_rich/1.compute:compute.read=kill_client@1",
)
"""The same once more, at another moment of the next try."""

EFFECTS = {
    "plan": "ledger.add_plan",
    "compute": "ledger.add_attempt",
    "validate": "ledger.set_validated",
    "commit": "ledger.commit",
    "publish": "ledger.add_publication",
}
"""What each step is there for: when it has happened, the next try finds it, and does little more."""

Hits = Mapping[tuple[int, str], Mapping[str, int]]
"""(batch, step) -> failpoint -> how often the step's process meets it in the undisturbed history."""


def failpoint_names(source: Path = SOURCE) -> set[str]:
    """Every failpoint in the source, so that a new one is in the matrix at once."""
    return {name for file in sorted(source.rglob("*.py")) for name in _names(ast.parse(file.read_text()))}


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            function, argument = node.func, node.args[0]
            called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if called == "failpoint":
                yield from _texts(argument)
            elif called in _LEDGER_CALLS and isinstance(argument, ast.Constant):
                yield f"ledger.{argument.value}"


def _texts(argument: ast.expr) -> Iterator[str]:
    """A name; or, of a formatted one, all that it can be."""
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
    elif isinstance(argument, ast.JoinedStr):
        prefix = "".join(str(part.value) for part in argument.values if isinstance(part, ast.Constant))
        if prefix == "compute.write_":
            yield from (prefix + kind for kind in _TABLE_KINDS)
        elif prefix != "ledger.":  # whose names stand where its transactions begin
            raise ValueError(f"what failpoints are called {ast.unparse(argument)}?")


def with_hidden(hits: Hits) -> dict[tuple[int, str], dict[str, int]]:
    """Add the hits that a step's process does not count: those of Spark's workers and the lease's keeper."""
    all_hits = {place: dict(counts) for place, counts in hits.items()}
    for (batch, step), counts in all_hits.items():
        if step == "compute":
            counts |= (MET_IN_A_DRAIN if batch == BATCHES else MET_BY_WORKERS) | {"ledger.renew": 2}
    return all_hits


def all_cases(hits: Hits) -> list[Case]:
    """Failpoint by action by hit by place, as far as the histories have them."""
    plain = [
        (Fault(batch, step, name, action, hit),)
        for (batch, step), counts in sorted(with_hidden(hits).items(), key=_order)
        for name, count in sorted(counts.items())
        for hit in range(1, min(count, 2) + 1)
        for action in ACTIONS
        if _can_be(name, action, batch, step)
    ]
    elsewhere = [
        (Fault(batch, step, name, action, hit, history),)
        for (history, batch, step), counts in ELSEWHERE.items()
        for name, count in counts.items()
        for hit in range(1, count + 1)
        for action in ACTIONS
        if _can_be(name, action, batch, step)
    ]
    return plain + elsewhere + connected_cases()


def connected_cases() -> list[Case]:
    """Return the faults of a server and of its users at each moment of a computation.

    Each occurs once in each history that is computed in a server, over its batches in turn; some occur in a
    row.
    """
    once: list[Case] = [
        (Fault(_batch_in_turn(history, name, turn), "compute", name, action, hit, history),)
        for history in IN_A_SERVER
        for turn, name, action, hit in _of_a_server(LAST[history])
    ]
    return once + [parse_case(text) for text in IN_A_RECOVERY]


def _of_a_server(last: int) -> Iterator[tuple[int, str, str, int]]:
    """Yield the turn, failpoint, action and hit of each fault of a server.

    The moments: before the server is asked; when it has given a session; while the job reads; when the last
    task decides; when the first one is about to finish its files; when all files are there.
    """
    moments = [
        ("compute.session", "", 1),
        ("compute.session", "_after", 1),
        ("compute.read", "", 1),
        ("compute.kernel", "", last),
        ("compute.files", "", 1),
        ("compute.files", "_after", last),
    ]
    for number, (name, after, hit) in enumerate(moments):
        of_clients = ("kill_client", "pause_client") if name in MET_BY_WORKERS else ()
        for turn, action in enumerate(("lose_server", "restart_server", "hang_server", *of_clients), number):
            yield turn, name, action + after, hit
    yield 0, "compute.files", "lose_answer_after", last


def _batch_in_turn(history: str, name: str, turn: int) -> int:
    """The drain reads nothing."""
    batches = [batch for batch in IN_A_SERVER[history] if name != "compute.read" or batch < BATCHES]
    return batches[turn % len(batches)]


def _order(item: tuple[tuple[int, str], object]) -> tuple[int, int]:
    (batch, step), _ = item
    return batch, STEPS.index(step)


def _can_be(name: str, action: str, batch: int, step: str) -> bool:
    if action != "pause":
        return True
    # A stopped worker of Spark does not stop the step, which keeps the lease: no other run can begin. And a
    # drain that wakes up before it has planned is a drain of its own: one batch more.
    return name not in MET_BY_WORKERS and (batch < 3 or step != "plan")


def matrix(cases: Iterable[Case], at_least: int, seed: int = 0) -> list[Case]:
    """Each failpoint by action by hit once or more, in each kind of history, over all places in turn; so many
    runs, if there are.
    """
    places = defaultdict(list)
    for case in cases:
        first = case[0]
        places[first.history, first.name, first.action, first.hit, len(case)].append(case)
    rng = random.Random(seed)
    for number, cases_of_place in enumerate(places.values()):
        turn = number % len(cases_of_place)
        cases_of_place[:] = cases_of_place[turn:] + cases_of_place[:turn]
    rounds = itertools.zip_longest(*places.values())
    chosen: list[Case] = []
    for cases_of_round in rounds:
        present = [case for case in cases_of_round if case is not None]
        rng.shuffle(present)
        chosen += present if not chosen else present[: max(0, at_least - len(chosen))]
    return chosen


def joined(cases: Iterable[Case], seed: int = 0) -> list[Case]:
    """Let one run of a history try several cases: one up to the commit of each batch, and one after it.

    Before each further fault a worker compares all that is seen with an undisturbed run, so this fault meets
    what it would meet alone. Faults from outside, which cost a server, remain alone. A process that stops is
    the last: it wakes up when all is done.
    """
    done: list[Case] = []
    runs: dict[str, list[Case]] = defaultdict(list)  # to which a later fault can be added
    for _, group in itertools.groupby(sorted(cases, key=_last_half), key=_last_half):
        grown: list[Case] = []
        for case in group:
            if any(fault.outside is not None for fault in case):
                done.append(case)
                continue
            run = _taken(runs[case[0].history], case) + case
            (done if any(map(_is_last, case)) else grown).append(run)
        for run in grown:
            runs[run[-1].history].append(run)
    done += [run for history in runs.values() for run in history]
    random.Random(seed).shuffle(done)
    return done


def _taken(runs: list[Case], case: Case) -> Case:
    """Take a run to which a case can be added; an empty one if there is none."""
    entries = {fault.entry for fault in case}
    for run in runs:
        if entries.isdisjoint(fault.entry for fault in run):  # by its entry a fault counts as fired
            runs.remove(run)
            return run
    return ()


def _last_half(case: Case) -> tuple[int, bool]:
    return case[-1].half


def _is_last(fault: Fault) -> bool:
    return fault.action == "pause" or fault.name == "ledger.renew"


def pairs(hits: Hits, cases: list[Case], count: int, seed: int) -> list[Case]:
    """A crash, then a crash in the recovery: where the next try meets what the first one had before it.

    That is what it died before, and all that comes after that in the step, unless the effect had happened.
    """
    rng = random.Random(seed)
    first = [
        case[0]
        for case in cases
        if case[0].action in ("kill", "raise")
        and case[0].hit == 1
        and _comes_before_the_effect(case[0], hits)
    ]
    chosen: list[Case] = []
    while len(chosen) < count:
        fault = rng.choice(first)
        met = list(hits[fault.batch, fault.step])
        name = rng.choice([fault.name, *met[met.index(fault.name) :]])
        action = rng.choice([second for second in ("kill", "kill_after", "lose") if second != fault.action])
        pair = (fault, Fault(fault.batch, fault.step, name, action, 1))
        if pair not in chosen:
            chosen.append(pair)
    return chosen


def _comes_before_the_effect(fault: Fault, hits: Hits) -> bool:
    met = list(hits.get((fault.batch, fault.step), {}))
    if fault.history != PLAIN or fault.name not in met or EFFECTS[fault.step] not in met:
        return False
    return fault.name != "ledger.renew" and met.index(fault.name) <= met.index(EFFECTS[fault.step])


def sample(cases: list[Case], count: int, seed: int) -> list[Case]:
    """Some cases, of all steps and actions alike."""
    rng = random.Random(seed)
    groups = defaultdict(list)
    for case in cases:
        groups[case[0].step, case[0].action].append(case)
    each_in_turn = list(groups.values())
    rng.shuffle(each_in_turn)
    for group in each_in_turn:
        rng.shuffle(group)
    mixed = [case for turn in itertools.zip_longest(*each_in_turn) for case in turn if case is not None]
    return mixed[:count]
