"""Propose expectations from a stage's history: pure decisions over samples of its emissions and its
counts.

A proposal allows some more than what was seen, and its `meta` says what it is based on. Columns of the key
get no bounds: new keys are normal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.numerals import counted
from tidegate.quality import facts
from tidegate.quality.facts import BatchCounts
from tidegate.quality.observations import UsualRange, emitted_share_as_before
from tidegate.storage.schema import KEY, TIMESTAMP, WINDOW

MOST_IN_SET = 20
"""A text column with more distinct values than this gets no set of values."""
_ROWS_PER_VALUE = 5
"""The average number of rows per value that a set needs; with fewer, a small set may be chance."""
_LEAST_FOR_PATTERN = 20
"""The number of distinct texts that must match a pattern before it is proposed."""
_SLACKS = (0.05, 0.1, 0.2, 0.3)
_TENTH = 0.1
_LEAST_SHARE = 0.01

PATTERNS = (
    "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "^[0-9]+$",
    "^[A-Z]+$",
    "^[A-Za-z0-9_-]+$",
)
"""The patterns that are tried, the narrowest first. Each can match a text in only one way, so none takes
long.
"""


@dataclass(frozen=True)
class Proposal:
    """An expectation for a suite file.

    Args:
        source: What the proposal is based on, for people.
        severity: The expectation's severity; None takes the one of the pipeline.
    """

    type: str
    kwargs: Mapping[str, Any]
    source: str
    severity: str | None = None

    @property
    def written(self) -> dict[str, Any]:
        """The expectation as a suite file stores it."""
        severity = {} if self.severity is None else {"severity": self.severity}
        return {"type": self.type, "kwargs": dict(self.kwargs), "meta": {"learned": self.source}} | severity


def propose_for_stage(
    logic: kernel.Stage, history: Sequence[BatchCounts], drops_late: bool
) -> list[Proposal]:
    """Propose what the stage promises by its `emit`, and bounds for its counts.

    Args:
        logic: The stage as the kernel has it.
        history: The counts of its batches, the oldest first.
        drops_late: Whether records can be late for the stage.
    """
    promised = f"the stage {logic.name} emits in this way"
    proposals = [
        Proposal(facts.KEYS, {}, "emissions have keys"),
        Proposal(facts.COUNTS, {}, "each record that is read is accounted for"),
    ]
    if logic.emit.is_change:
        proposals.append(Proposal(facts.NEIGHBOURS, {}, promised))
    if logic.emit.is_final:
        proposals.append(Proposal(facts.FINALS, {}, promised))
    proposals.append(_share(facts.QUARANTINED, [past.share(past.quarantined_in_stages) for past in history]))
    if drops_late:
        proposals.append(_share(facts.LATE, [past.share(past.late_in_stages) for past in history]))
    return [*proposals, *_emitted_share(history)]


def _share(type_: str, shares: Sequence[float]) -> Proposal:
    """Propose twice the largest share so far, at most 1 and at least one percent."""
    most = max(shares, default=0.0)
    # Never below the largest share so far: the batches that it is learned from have to pass.
    bound = max(most, min(1.0, max(_rounded_up(2 * most), _LEAST_SHARE)))
    source = f"{most:.2%} at most, in {counted(len(shares), 'batch')}"
    return Proposal(type_, {"max_share": bound}, source, "warning")


def _rounded_up(share: float) -> float:
    """Round a share up to two significant digits."""
    if not share:
        return 0.0
    digits = 1 - math.floor(math.log10(share))
    scale: float = 10**digits
    return math.ceil(share * scale) / scale


def _emitted_share(history: Sequence[BatchCounts]) -> Iterator[Proposal]:
    """Propose the least slack with which each past batch passes; propose nothing if the share varies too
    much.
    """
    # smaller batches have shares that vary by chance; `emitted_share_as_before` skips them, too
    judged = [past for past in history if past.came_in >= 100]
    # One batch more than the expectation needs, so that at least one is judged by the others.
    if len(judged) <= 5:
        return
    for slack in _SLACKS:
        if all(
            emitted_share_as_before(
                now, history[max(0, at - facts.HISTORY_BATCHES) : at][::-1], UsualRange(slack=slack)
            ).passed
            for at, now in enumerate(history)
        ):
            shares = [past.share(past.emitted) for past in judged]
            source = (
                f"{min(shares):.2%} to {max(shares):.2%} of what came in, in {counted(len(judged), 'batch')}"
            )
            yield Proposal(facts.EMITTED, {"slack": slack}, source, "warning")
            return


def propose_for_columns(batches: Sequence[pa.Table], key_columns: Collection[str]) -> list[Proposal]:
    """Propose what the columns of emissions have in common; nothing if there are no emissions.

    Args:
        batches: A sample of the emissions of each batch, the oldest first, with the same columns.
        key_columns: Columns that the key is made of.

    Example::

        propose_for_columns([pa.table({"price": [1, 2]})], ())[0].type
        # "expect_column_values_to_not_be_null"
    """
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return []
    names = [name for name in batches[0].column_names if name != KEY]
    proposals: list[Proposal] = []
    for name in names:
        column = _Column(name, [batch[name] for batch in batches])
        if name not in WINDOW:
            proposals += column.nulls()
        if name not in (TIMESTAMP, *WINDOW):
            proposals += column.form() if name in key_columns else column.values()
    if set(WINDOW) <= set(names):
        start, end = WINDOW
        source = "a window ends after it starts"
        proposals.append(
            Proposal(
                "expect_column_pair_values_a_to_be_greater_than_b",
                {"column_A": end, "column_B": start},
                source,
            )
        )
    return proposals


class _Column:
    """One column of a sample, by batch."""

    def __init__(self, name: str, parts: Sequence[pa.ChunkedArray]) -> None:
        self._name = name
        self._parts = parts
        self._all = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        self._valid = self._all.drop_null()
        self._seen = f"{counted(len(self._all), 'emission')} of {counted(len(parts), 'batch')}"

    def nulls(self) -> Iterator[Proposal]:
        """Propose that no value is null, or only few, if each batch has mostly values."""
        type_, column = "expect_column_values_to_not_be_null", {"column": self._name}
        if not self._all.null_count:
            yield Proposal(type_, column, f"none is null in {self._seen}", "warning")
            return
        # The worst batch, and not the average: the expectation is evaluated batch by batch.
        least = min(1 - part.null_count / len(part) for part in self._parts)
        mostly = math.floor((least - _TENTH) * 100) / 100
        if mostly >= 0.5:
            source = f"{least:.2%} at least are not null in {self._seen}"
            yield Proposal(type_, column | {"mostly": mostly}, source, "warning")

    def values(self) -> Iterator[Proposal]:
        """Propose a set or a pattern of texts, or a range of numbers."""
        type_ = self._all.type
        if not len(self._valid):
            return
        if pa.types.is_string(type_) or pa.types.is_large_string(type_):
            values = pc.unique(self._valid)
            if len(values) <= MOST_IN_SET and len(values) * _ROWS_PER_VALUE <= len(self._valid):
                kwargs = {"column": self._name, "value_set": sorted(values.to_pylist())}
                source = f"{len(values)} values in {self._seen}"
                yield Proposal("expect_column_values_to_be_in_set", kwargs, source, "warning")
            else:
                yield from self.form()
        elif pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
            yield from self._range()

    def form(self) -> Iterator[Proposal]:
        """Propose the first of `PATTERNS` that all texts match."""
        type_ = self._all.type
        if not (pa.types.is_string(type_) or pa.types.is_large_string(type_)):
            return
        values = pc.unique(self._valid).to_pylist()
        if len(values) < _LEAST_FOR_PATTERN:
            return
        pattern = next((form for form in PATTERNS if all(re.match(form, value) for value in values)), None)
        if pattern is not None:
            kwargs = {"column": self._name, "regex": pattern}
            source = f"all {len(values):,} values in {self._seen}"
            yield Proposal("expect_column_values_to_match_regex", kwargs, source, "warning")

    def _range(self) -> Iterator[Proposal]:
        """Propose the least and the largest value, with a tenth of their distance as room on both sides.

        The range does not cross zero. It has no upper bound if each batch had larger values than the one
        before, as with times and counters.
        """
        valid = self._valid
        if pa.types.is_floating(valid.type):
            valid = valid.filter(pc.invert(pc.is_nan(valid)))
            # JSON, in which suites are stored, has no infinity
            if pc.any(pc.is_inf(valid)).as_py():
                return
        least, most = pc.min_max(valid).as_py().values()
        if least is None:
            return
        bounds = _with_room(least, most)
        if self._rises():
            del bounds["max_value"]
        source = f"{least} to {most} in {self._seen}"
        yield Proposal(
            "expect_column_values_to_be_between", {"column": self._name} | bounds, source, "warning"
        )

    def _rises(self) -> bool:
        """Return whether there are at least three batches, and each has a larger maximum than the one
        before.
        """
        most = [pc.max(part).as_py() for part in self._parts if part.null_count < len(part)]
        return len(most) >= 3 and all(earlier < later for earlier, later in pairwise(most))


def _with_room(least: Any, most: Any) -> dict[str, Any]:
    """Return the bounds of a range as JSON numbers: integers if both values are integers."""
    is_whole = isinstance(least, int)
    if is_whole:
        room = max(1, math.ceil((most - least) * _TENTH))
        low, high = least - room, most + room
    else:
        low, high = float(least), float(most)
        room = (high - low) * _TENTH or max(abs(high), 1.0) * _TENTH
        low, high = low - room, high + room
    if least >= 0:
        low = max(low, type(low)(0))
    if most <= 0:
        high = min(high, type(high)(0))
    return {"min_value": low, "max_value": high}
