"""Decide which generation of a pipeline is in charge, and which batches are published. Pure: no database.

A pipeline without promotions has no generation in charge: all of its generations publish each batch as soon
as it is committed. From the first promotion on, only the generation in charge publishes. Each promotion ends
the span of batches of the previous generation and begins a new span. So the number of a batch alone says
whether it is published: the answer is the same for every process, at every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.ledger.records import Stream

_END = 2**62
"""Later than any batch: the span of the generation in charge has no end yet."""


@dataclass(frozen=True)
class Promotion:
    """The decision that a generation takes charge of its pipeline.

    Args:
        number: counts the pipeline's promotions from 1.
        generation: the generation that takes charge.
        first_seq: its batches are published from this one on.
        replaced_seq: the last published batch of the previous generation; 0 for the first promotion, which
            replaces none.
        is_net: batch `first_seq` has the net differences for consumers, and the batches before it are never
            published.
        run_id: the run that decided; it decides no second promotion.
        is_rollback: the promotion takes back the previous one.
        decided_at: epoch seconds, set by the ledger.
        approved_by: the person who approved, if recorded.
    """

    pipeline: str
    number: int
    generation: int
    first_seq: int
    replaced_seq: int
    is_net: bool
    run_id: str
    is_rollback: bool = False
    decided_at: float = 0.0
    approved_by: str | None = None

    @property
    def stream(self) -> Stream:
        """The stream that is in charge after the promotion."""
        return Stream(self.pipeline, self.generation)


@dataclass(frozen=True)
class Span:
    """Batches of a generation that are published one after the other. `is_net`: see `Promotion`.

    Example: `str(Span(1, range(1, 8), False))` is `1-7`.
    """

    generation: int
    seqs: range
    is_net: bool

    def __str__(self) -> str:
        """Return the batches as text, such as `1-7`, or `12-` for the generation in charge."""
        return f"{self.seqs.start}-" + ("" if self.seqs.stop == _END else str(self.seqs.stop - 1))


@dataclass(frozen=True)
class Charge:
    """The promotions of a pipeline, oldest first, and what follows from them.

    Example: after `Charge((Promotion("orders", 1, 1, 1, 0, False, "a"), Promotion("orders", 2, 2, 5, 9, True,
    "b")))` generation 2 is in charge, and batches 1 to 9 of generation 1 and all from 5 on of generation 2
    are published.
    """

    promotions: tuple[Promotion, ...] = ()

    @property
    def generation(self) -> int | None:
        """The generation in charge; None if nothing was ever promoted."""
        return self.promotions[-1].generation if self.promotions else None

    @property
    def previous(self) -> int | None:
        """The generation to which `rollback` goes back; None if there is none.

        It is the generation that the current one replaced. A rollback takes a promotion back, so a second
        rollback goes back one step further, and never forward again.
        """
        generations: list[int] = []
        for promotion in self.promotions:
            if promotion.is_rollback:
                generations.pop()
            else:
                generations.append(promotion.generation)
        return generations[-2] if len(generations) > 1 else None

    def replaced_by(self, generation: int) -> int | None:
        """Return the generation that was in charge when another one first took charge, or that is in charge
        if it never did; None if there is none.

        Example: 1 for generation 2, if that was promoted in place of generation 1, whatever came later.
        """
        before: int | None = None
        for promotion in self.promotions:
            if promotion.generation == generation:
                return before
            before = promotion.generation
        return before

    def promotion_of(self, run_id: str) -> Promotion | None:
        """Return the promotion that a run has decided; None if it decided none."""
        return next((promotion for promotion in self.promotions if promotion.run_id == run_id), None)

    def spans(self) -> Iterator[Span]:
        """Yield the spans of batches that consumers get of this pipeline, in the order in which they get
        them.
        """
        # Each promotion ends the span before it, at the head that it compared.
        ends = [promotion.replaced_seq + 1 for promotion in self.promotions[1:]]
        for promotion, end in zip(self.promotions, [*ends, _END], strict=False):
            yield Span(promotion.generation, range(promotion.first_seq, end), promotion.is_net)

    def role(self, generation: int) -> str:
        """Return what a generation does with its batches: `publishes`, `in charge` or `withholds`."""
        if self.generation is None:
            return "publishes"
        return "in charge" if self.generation == generation else "withholds"

    def published_batches(self, generation: int) -> str:
        """Return the batches that a generation publishes, such as `1-7, 12-`; `all` without promotions."""
        if not self.promotions:
            return "all"
        spans = [span for span in self.spans() if span.generation == generation and span.seqs]
        return ", ".join(map(str, spans)) or "none"

    def withholds(self, generation: int) -> bool:
        """Return whether the batches that a generation commits from now on stay in its outboxes."""
        return self.generation not in (None, generation)

    def goes_out(self, generation: int, seq: int) -> bool:
        """Return whether a batch of a generation is published."""
        return not self.promotions or any(
            span.generation == generation and seq in span.seqs for span in self.spans()
        )

    def released(self, generation: int) -> int:
        """Return the last batch of a generation that was published or replaced by net differences.

        For a generation that is not in charge; 0 if it never was. A promotion publishes the batches after it.

        Example: 9 for generation 1, if generation 2 replaced it after its batch 9.
        """
        ends = [span.seqs.stop - 1 for span in self.spans() if span.generation == generation]
        return max(ends, default=0)
