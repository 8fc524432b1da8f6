"""The built-in expectations as Great Expectations' own: usable in suite files, shown in its Data Docs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tidegate import core
from tidegate.quality.builtin import finals, keys, neighbours, shares, types
from tidegate.quality.builtin.facts import StageFacts, facts_of_batch
from tidegate.quality.builtin.observation import Observation
from tidegate.quality.expectations import gx

# by attributes: what is imported under its own name comes before `expectations` has left out what it can
BatchExpectation = gx.expectations.expectation.BatchExpectation
renderer = gx.render.renderer.renderer.renderer
Number = float | dict[str, Any]
Switch = bool | dict[str, Any]
"""A value, or a suite parameter."""


class BuiltinExpectation(BatchExpectation, ABC):  # type: ignore[misc, valid-type]  # it is not typed
    """An expectation of a batch that `known_facts` tells of. It does not look at the table that is checked.

    `promise` says in a sentence what is expected, for Data Docs.
    """

    metric_dependencies: ClassVar[tuple[str, ...]] = ()
    promise: ClassVar[str] = ""

    @abstractmethod
    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """What is seen. `options`: what the suite says, and defaults; suite parameters are values by now.

        Raises ValueError where it has no meaning for the stage; LakeDamaged, LakeUnavailable.
        """

    def _validate(
        self, metrics: dict[Any, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        facts = facts_of_batch()
        if facts is None:
            raise ValueError(
                f"{self.expectation_type} is about a batch of tidegate: only its gate and `tidegate check` "
                "evaluate it"
            )
        return self.observe(facts, self._get_success_kwargs()).result()

    @classmethod
    @renderer(renderer_type=gx.render.LegacyRendererType.PRESCRIPTIVE)  # type: ignore[untyped-decorator]
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[Any]:
        """Its sentence, with the options that the suite sets."""
        configuration = configuration or result.expectation_config
        options = {
            name: configuration.kwargs[name] for name in cls.success_keys if name in configuration.kwargs
        }
        written = ", ".join(f"{name}: ${name}" for name in options)
        template = f"{cls.promise} ({written})" if written else cls.promise
        styling = (runtime_configuration or {}).get("styling")
        return [
            gx.render.RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={"template": template, "params": options, "styling": styling},
            )
        ]


class ExpectKeysToNotBeNull(BuiltinExpectation):
    """Each emission has a key, and a value in each of the columns that its key is made of."""

    promise: ClassVar[str] = "Emissions have no null in their key."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `keys.keys_not_null`."""
        return keys.keys_not_null(facts.emissions(keys.COLUMNS))


class ExpectEqualNeighboursToBeAbsent(BuiltinExpectation):
    """What a stage with `emit: {on: change}` emits differs from what it emitted of the key before.

    Args:
        with_state: Also compare the first emission of a key with the state before the batch, where that is
            kept. It is read as far as the batch's keys need it.
    """

    with_state: Switch = True
    success_keys: ClassVar[tuple[str, ...]] = ("with_state",)
    promise: ClassVar[str] = "An emission differs from the one of its key before."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `neighbours.no_equal_neighbours`."""
        emit = facts.logic.emit
        if not isinstance(emit, core.Change):
            raise ValueError(f"the stage {facts.logic.name} does not emit `on: change`")
        has_state = options["with_state"] and facts.state_before is not None
        before = facts.newest_state if has_state else None
        return neighbours.no_equal_neighbours(facts.emissions(neighbours.COLUMNS), emit, before)


class ExpectOneFinalPerWindowAndKey(BuiltinExpectation):
    """What a stage with `emit: {on: window_close}` emits goes out once per window and key.

    Args:
        batches: In so many batches before it is looked for, too; 0: only in the batch itself.
    """

    batches: Number = types.OUTBOXES_BEFORE
    success_keys: ClassVar[tuple[str, ...]] = ("batches",)
    promise: ClassVar[str] = "A window of a key is final once."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `finals.one_final_per_entry`."""
        if not isinstance(facts.logic.emit, core.WindowClose):
            raise ValueError(f"the stage {facts.logic.name} does not emit `on: window_close`")
        batches = int(options["batches"])
        return finals.one_final_per_entry(
            facts.emissions(finals.COLUMNS),
            (lambda *hashes: facts.emissions_before(batches, finals.COLUMNS, hashes)) if batches else None,
        )


class ExpectCountsToAddUp(BuiltinExpectation):
    """Each record that came in is used, quarantined, deduplicated or late; what goes out is in the outbox."""

    promise: ClassVar[str] = "What came in is accounted for, and the outbox has what goes out."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `shares.counts_add_up`."""
        return shares.counts_add_up(facts.counts, sum(file.rows for file in facts.outbox))


class ExpectLateShareToBeAtMost(BuiltinExpectation):
    """At most a share of the records that came in was too late for all of its windows.

    Args:
        max_share: From 0 to 1. Where nothing came in, the share is 0.
    """

    max_share: Number
    success_keys: ClassVar[tuple[str, ...]] = ("max_share",)
    promise: ClassVar[str] = "Few records are late."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `shares.share_at_most`."""
        return shares.share_at_most(facts.counts, facts.counts.late, float(options["max_share"]))


class ExpectQuarantinedShareToBeAtMost(BuiltinExpectation):
    """At most a share of the records that came in could not be used, and is in quarantine.

    Args:
        max_share: From 0 to 1. Where nothing came in, the share is 0.
    """

    max_share: Number
    success_keys: ClassVar[tuple[str, ...]] = ("max_share",)
    promise: ClassVar[str] = "Few records are in quarantine."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `shares.share_at_most`."""
        return shares.share_at_most(facts.counts, facts.counts.quarantined, float(options["max_share"]))


class ExpectEmittedShareToBeAsBefore(BuiltinExpectation):
    """The share of what came in that the stage emitted is what the batches before lead to.

    It lies within `mean ± max(deviations * d, slack)` of their shares, where d is their standard deviation.

    Args:
        batches: So many batches before, the newest.
        deviations: See above.
        slack: See above, in shares: 0.05 lets 20 % be 15 to 25 %.
        least_batches: With fewer batches before, it is met.
        least_records: Batches in which fewer records came in are not looked at; if it is one, it is met.
    """

    batches: Number = types.HISTORY_BATCHES
    deviations: Number = 3.0
    slack: Number = 0.05
    least_batches: Number = 5
    least_records: Number = 100
    success_keys: ClassVar[tuple[str, ...]] = (
        *("batches", "deviations", "slack", "least_batches", "least_records"),
    )
    promise: ClassVar[str] = "As much of what came in goes out as before."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """See `shares.emitted_share_as_before`."""
        usual = shares.UsualRange(
            float(options["deviations"]),
            float(options["slack"]),
            int(options["least_batches"]),
            int(options["least_records"]),
        )
        return shares.emitted_share_as_before(facts.counts, facts.history[: int(options["batches"])], usual)
