"""Which generation of a pipeline is in charge, and which batches go out by that. Pure: the rows are given.

A pipeline without promotions has no generation in charge: all of its generations publish what they decide, as
soon as they have decided it. From the first one on only the generation in charge publishes. Each promotion
ends the span of batches of the generation before it, and begins one of its own; so whether a batch goes out
is a matter of its number alone, whoever asks, and whenever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.ledger.records import Stream

_END = 2**62
"""Later than any batch: the span of the generation in charge has no end yet."""


@dataclass(frozen=True)
class Promotion:
    """The decision that a generation takes charge of its pipeline, the `number`-th, from 1 on.

    Its batches go out from `first_seq` on. `replaced_seq` is the last batch of the generation before it that
    does; 0 for the first promotion, which replaces none. `is_net`: its batch `first_seq` has what changes
    for consumers, and what it decided before never goes out. `run_id`: the run that promoted it, which
    promotes nothing else. `is_rollback`: it takes back the promotion of the generation before it.
    `decided_at`: epoch seconds, set by the ledger. `approved_by`: who has approved it, where that is known.
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
        """What is in charge from then on."""
        return Stream(self.pipeline, self.generation)


@dataclass(frozen=True)
class Span:
    """Batches of a generation that go out one after the other: those of `seqs`. `is_net`: see `Promotion`."""

    generation: int
    seqs: range
    is_net: bool

    def __str__(self) -> str:
        """Such as `1-7`; `12-` of the generation in charge."""
        return f"{self.seqs.start}-" + ("" if self.seqs.stop == _END else str(self.seqs.stop - 1))


@dataclass(frozen=True)
class Charge:
    """The promotions of a pipeline, the oldest first, and what they come to."""

    promotions: tuple[Promotion, ...] = ()

    @property
    def generation(self) -> int | None:
        """The one in charge; None where nothing was ever promoted."""
        return self.promotions[-1].generation if self.promotions else None

    @property
    def previous(self) -> int | None:
        """The generation to which `rollback` goes; None where there is none.

        It is the one that the promotion of the generation in charge replaced. A rollback takes a promotion
        back, so a second one goes further back, and never forward again.
        """
        standing: list[int] = []
        for promotion in self.promotions:
            if promotion.is_rollback:
                standing.pop()
            else:
                standing.append(promotion.generation)
        return standing[-2] if len(standing) > 1 else None

    def promotion_of(self, run_id: str) -> Promotion | None:
        """The promotion that a run has decided; None where it has decided none."""
        return next((promotion for promotion in self.promotions if promotion.run_id == run_id), None)

    def spans(self) -> Iterator[Span]:
        """All that consumers get of this pipeline, in the order in which they get it."""
        ends = [promotion.replaced_seq + 1 for promotion in self.promotions[1:]]
        for promotion, end in zip(self.promotions, [*ends, _END], strict=False):
            yield Span(promotion.generation, range(promotion.first_seq, end), promotion.is_net)

    def withholds(self, generation: int) -> bool:
        """Whether what a generation decides from now on stays in its outboxes."""
        return self.generation not in (None, generation)

    def goes_out(self, generation: int, seq: int) -> bool:
        """Whether a batch of a generation is for consumers."""
        return not self.promotions or any(
            span.generation == generation and seq in span.seqs for span in self.spans()
        )

    def released(self, generation: int) -> int:
        """The last batch of a generation that is not in charge up to which it has gone out, or was replaced
        by net differences; 0: it was never in charge. What comes after it goes out when it is promoted.
        """
        ends = [span.seqs.stop - 1 for span in self.spans() if span.generation == generation]
        return max(ends, default=0)
