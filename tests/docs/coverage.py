"""The table at the end of docs/semantics.md: each reduce x emit x window x clock, asked of the grammar.

`python -m tests.docs.coverage` writes it into the page anew.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings

from tests.case_files import cases_in
from tests.kernel.model import strategies
from tidegate.errors import PipelineInvalid
from tidegate.model.stage import Stage
from tidegate.yaml.load import parse_case_pipeline

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "semantics.md"
SAMPLES = REPOSITORY / "include" / "pipelines" / "cases"
KAFKA_STREAMS = REPOSITORY / "tests" / "conformance" / "kafka-streams"

REDUCES: dict[str, Any] = {"latest": "latest", "aggregates": {"n": "count(*)"}, "collect": "collect"}
EMITS: dict[str, dict[str, Any]] = {
    "update": {},
    "change": {},
    "window_close": {},
    "time_limit": {"after": "1m"},
    "threshold": {"count": 3},
    "interval": {"every": "1m"},
    "quiet": {"after": "10m"},
}
WINDOWS: dict[str, dict[str, str] | None] = {
    "none": None,
    "tumbling": {"tumbling": "1h"},
    "hopping": {"hopping": "1h", "every": "10m"},
    "session": {"session": "10m"},
}
CLOCKS = ("stream", "run")
BEGIN, END = "<!-- coverage: begin -->", "<!-- coverage: end -->"


@dataclass(frozen=True)
class Combination:
    """The kinds of emit, window, reduce and clock that a stage consists of."""

    on: str
    window: str
    reduce: str
    clock: str

    def stage(self) -> dict[str, Any]:
        """A stage of the kind, as it is written."""
        emit = {"on": self.on, **EMITS[self.on], "clock": self.clock}
        stage: dict[str, Any] = {"name": "out", "reduce": REDUCES[self.reduce], "emit": emit}
        return stage | ({"window": window} if (window := WINDOWS[self.window]) else {})


def refusal(combination: Combination) -> str | None:
    """Return the grammar's reason to refuse a combination, or None if it accepts it."""
    source = {"topics": ["in"], "format": "json", "columns": "x bigint"}
    try:
        parse_case_pipeline({"pipeline": "p", "source": source, "stages": [combination.stage()]}, "p.yaml")
    except PipelineInvalid as error:
        return "; ".join(problem.message for problem in error.problems)
    return None


def combination_of(stage: Stage) -> Combination:
    """Return the combination of a pipeline's stage."""
    window = type(stage.window).__name__.lower() if stage.window else "none"
    reduce = stage.reduce.word or "aggregates"
    return Combination(stage.emit.on, window, reduce, stage.emit.clock)


@cache
def cases() -> Mapping[Combination, Mapping[str, Sequence[str]]]:
    """Combination -> `Kafka Streams` or `sample` -> names of those whose cases have such a stage."""
    examples: dict[Combination, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for kind, combination, name in _cases():
        if name not in examples[combination][kind]:
            examples[combination][kind].append(name)
    return examples


def _cases() -> Iterator[tuple[str, Combination, str]]:
    for path in sorted(KAFKA_STREAMS.glob("*.json")):
        for case in cases_in(path):
            yield "Kafka Streams", combination_of(case.pipeline.stages[0]), re.sub(r"-\d+$", "", path.stem)
    for path in sorted(SAMPLES.rglob("*.yaml")):
        for case in cases_in(path):
            for stage in case.pipeline.stages:
                yield "sample", combination_of(stage), path.parent.name


def is_in_the_model(combination: Combination) -> bool:
    """Whether the property tests of the kernel against the model draw such stages."""
    windows = [
        kind
        for kind in strategies.WINDOWS
        if (kind and combination.window in kind) or kind is WINDOWS[combination.window]
    ]
    drawn = find(
        strategies.cases([combination.on], [combination.reduce], windows, [combination.clock]),
        lambda _: True,
        settings=settings(database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)),
    )
    by_default = "stream" if combination.on in ("update", "change") else "run"
    return bool(drawn.stage["emit"].get("clock", by_default) == combination.clock)


def covered(combination: Combination) -> str:
    """A cell: refused, or what shows that it works."""
    if refusal(combination) is not None:
        return "refused"
    model = ["model"] if is_in_the_model(combination) else []
    named = cases().get(combination, {}).items()
    shown = [f"{kind} {', '.join(f'`{name}`' for name in names)}" for kind, names in named]
    return "; ".join([*model, *shown]) or "allowed"


def table() -> str:
    """The table, in Markdown."""
    return "\n".join(
        ["| `on` | window | reduce | `clock: stream` | `clock: run` |", "|---|---|---|---|---|", *_rows()]
    )


def _rows() -> Iterator[str]:
    for on in EMITS:
        for window in WINDOWS:
            for reduce in REDUCES:
                both = [Combination(on, window, reduce, clock) for clock in CLOCKS]
                refused = {refusal(combination) for combination in both}
                if None not in refused:
                    cells = [f"refused: {', '.join(sorted(filter(None, refused)))}", "refused"]
                else:
                    cells = [covered(combination) for combination in both]
                yield f"| `{on}` | {window} | {reduce} | {cells[0]} | {cells[1]} |"


def with_table(page: str) -> str:
    """The page with the table as it is now. Raises ValueError when the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} needs a line {BEGIN} and a line {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
