"""Publish to a table of ClickHouse, so that a reader with `FINAL` sees each emission exactly once.

ClickHouse has no transaction that covers the rows and a progress row. Instead, rows that come again are the
same rows: they have the same sorting key, and a version of term, batch and place. A reader sees the row with
the greatest version. So a batch can be inserted any number of times, and a late insertion of an older batch
changes nothing. The progress is inserted after the rows, and says what need not be inserted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from urllib.parse import urlsplit

from tidegate.errors import ProgressLost
from tidegate.failpoints import failpoint
from tidegate.ledger import LeasedLedger
from tidegate.model.connection import Connection
from tidegate.sinks.clickhouse.model import ClickHouseSink
from tidegate.sinks.clickhouse.rows import ClickHouseRows
from tidegate.sinks.clickhouse.server import opened
from tidegate.sinks.clickhouse.table import ClickHouseTable
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import Dataset, OpenSink, require_not_ahead
from tidegate.sinks.web import HttpConfig


class OpenClickHouseTable(OpenSink[ClickHouseSink]):
    """Publishes a batch in insertions of bounded size, and then its progress."""

    title = "ClickHouse"

    @property
    def dataset(self) -> Dataset:
        """The server and the table."""
        return Dataset(f"clickhouse://{urlsplit(self._config.place).netloc}", self.declared.table)

    def check_settings(self) -> None:
        """Check that the server is set, and its certificates can be used. Raises SettingsInvalid."""
        _ = self._config

    def check_target(self) -> None:
        """Check that the server answers. Writes nothing."""
        with self._opened() as table:
            _ = table.progress

    def warnings(self) -> Iterable[str]:
        """Yield a sentence if a secret would go over the network unencrypted."""
        if (exposure := self._config.exposure) is not None:
            yield exposure

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the table takes the emissions, and replaces rows as the mode needs it."""
        rows = ClickHouseRows(self.declared, outbox)
        rows.check_times()
        with self._opened() as table:
            table.check(rows)

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Insert the rows of a batch that is not complete, then the progress."""
        rows = ClickHouseRows(self.declared, outbox)
        with self._opened() as table:
            if self._lacks(table, outbox, last_published):
                self._insert(lease, table, rows)
                self._complete(table, outbox)

    def erase(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Insert the deletions of the keys, and delete all rows of these keys with them."""
        rows = ClickHouseRows(self.declared, outbox)
        with self._opened() as table:
            if self._lacks(table, outbox, last_published):
                self._insert(lease, table, rows)
                with failpoint("clickhouse.erase"):
                    table.delete_keys(outbox.plan.seq)
                # The batch comes last: a process that is killed before begins again.
                self._complete(table, outbox)

    def erasure_effect(self) -> str:
        """Return a sentence on the rows, and on the files that the server removes later."""
        return (
            f"{self.name}: all rows of the keys are deleted. The server removes the files that had them "
            "after `old_parts_lifetime`, by default 8 minutes."
        )

    def check_progress(self) -> None:
        """Check that the table has what was published to it, and nothing that this ledger has not
        committed.
        """
        with self._opened() as table:
            self._check(table, self.context.ledger.last_published(self.context.stream, self.name))

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on rows of later batches: deleted, or overwritten in mode `upsert`."""
        return self.restart_effect_on_rows(seq, overwrites=self.declared.mode != "append")

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Begin a term, whose rows replace all others, and delete appended rows."""
        with self._opened() as table, failpoint("clickhouse.restart"):
            # The progress first: a process that is killed in between leaves progress that the ledger misses.
            self._set_progress(table, seq, begins_term=True)
            if self.declared.mode == "append" and table.exists:
                table.delete_after(seq)
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the batch, and return how many of its emissions the table has."""
        with self._opened() as table, failpoint("clickhouse.seal"):
            if table.progress.seq < seq:
                self._set_progress(table, seq)
                return table.count(seq)
        published = self.published(seq)
        return published[1].emitted if published is not None else 0

    def _lacks(self, table: ClickHouseTable, outbox: Outbox, last_published: int) -> bool:
        """Return whether the table lacks a batch, or a part of it. Raises as `publish`."""
        self._check(table, last_published)
        seq, newest = outbox.plan.seq, table.progress.seq
        require_not_ahead(self.shard, self.declared.table, seq, newest)
        return newest < seq

    def _check(self, table: ClickHouseTable, last_published: int) -> None:
        progress = table.progress
        is_other = progress.table not in ("", table.identity)
        if progress.seq < last_published or (progress.seq and is_other):
            state = (
                "it is another table of that name" if is_other else f"the progress says batch {progress.seq}"
            )
            raise ProgressLost(
                f"The table {self.declared.table} is not what batch {max(progress.seq, last_published)} of "
                f"{self.shard} was published to: {state}",
                "Restore it; or let it get batches again: `tidegate recover`, with --choose send-again.",
            )
        if progress.seq:
            self.require_committed(progress.seq, lambda name: name == progress.attempt)

    def _insert(self, lease: LeasedLedger, table: ClickHouseTable, rows: ClickHouseRows) -> None:
        table.create_for(rows)
        promotion = self._promotion(rows.seq)
        if table.progress.promotion != promotion:
            # Its rows replace those of the generation that was in charge before.
            lease.renew()
            term = table.next_term()
            table.set_progress(
                replace(table.progress, term=term, promotion=promotion, table=table.identity), None
            )
        table.insert(rows, lease.renew)

    def _complete(self, table: ClickHouseTable, outbox: Outbox) -> None:
        plan = outbox.plan
        progress = replace(table.progress, seq=plan.seq, attempt=outbox.attempt, table=table.identity)
        table.set_progress(progress, plan)

    def _set_progress(self, table: ClickHouseTable, seq: int, *, begins_term: bool = False) -> None:
        """Store a committed batch as the newest, whose plan the ledger may no longer have."""
        plan = self.context.ledger.plan(self.context.stream, seq)
        term = table.next_term() if begins_term else table.progress.term
        attempt, identity = self._attempt_name(seq), table.identity
        table.set_progress(replace(table.progress, seq=seq, attempt=attempt, term=term, table=identity), plan)

    def _promotion(self, seq: int) -> int:
        """Return the number of the promotion by which a batch goes out; 0 without promotions."""
        stream = self.context.stream
        spans = self.context.ledger.charge(stream.pipeline).spans()
        promotions = [
            number
            for number, span in enumerate(spans, 1)
            if span.generation == stream.generation and seq in span.seqs
        ]
        return max(promotions, default=0)

    @contextmanager
    def _opened(self) -> Iterator[ClickHouseTable]:
        with opened(self._config) as server:
            yield ClickHouseTable(server, self.declared.table, self.shard, str(self.context.stream))

    @cached_property
    def _config(self) -> HttpConfig:
        name = self.declared.connection
        return HttpConfig.parse(
            self.context.settings.clickhouse(name), Connection("clickhouse", name).variable
        )


SINK = OpenClickHouseTable
