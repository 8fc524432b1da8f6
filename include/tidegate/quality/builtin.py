"""The built-in expectations as classes of Great Expectations: usable in suite files, shown in Data Docs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tidegate.quality import facts as batch_facts
from tidegate.quality import neighbours, observations
from tidegate.quality.expectations import gx
from tidegate.quality.facts import StageFacts, current_facts
from tidegate.quality.observations import Observation

# by attributes of `gx`: an import by name would run before `expectations` hides the other engines
BatchExpectation = gx.expectations.expectation.BatchExpectation
renderer = gx.render.renderer.renderer.renderer
Number = float | dict[str, Any]
Switch = bool | dict[str, Any]
"""A value, or a suite parameter."""


class BuiltinExpectation(BatchExpectation, ABC):  # type: ignore[misc, valid-type]  # it is not typed
    """An expectation of the batch that `provide_facts` describes. It does not read the table that is
    checked.

    `promise` is a sentence for Data Docs that says what is expected.
    """

    metric_dependencies: ClassVar[tuple[str, ...]] = ()
    split: ClassVar[str] = "rows"
    promise: ClassVar[str] = ""

    @abstractmethod
    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Observe the batch.

        Args:
            options: The options of the suite, and defaults. Suite parameters are already replaced by values.

        Raises ValueError if the expectation has no meaning for the stage; LakeDamaged, LakeUnavailable if
        files cannot be read.
        """

    def _validate(
        self, metrics: dict[Any, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        facts = current_facts()
        if facts is None:
            raise ValueError(
                f"{self.expectation_type} checks a batch of tidegate: only the validate step and "
                "`tidegate check` can evaluate it"
            )
        return self.observe(facts, self._get_success_kwargs()).result()

    @classmethod
    @renderer(renderer_type=gx.render.LegacyRendererType.PRESCRIPTIVE)  # type: ignore[untyped-decorator]
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[Any]:
        """Render the promise, with the options that the suite sets."""
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
        """Observe keys. Raises as `BuiltinExpectation.observe`; the rule is `keys_not_null`."""
        return observations.keys_not_null(facts.emissions(observations.KEY_TEXT_AND_COLUMNS))


class ExpectEqualNeighboursToBeAbsent(BuiltinExpectation):
    """Each emission of a stage with `emit: {on: change}` differs from the emission of its key before it.

    Args:
        with_state: Also compare the first emission of a key with the state before the batch, if that is
            stored.
            Only the state of the batch's keys is read.
    """

    with_state: Switch = True
    success_keys: ClassVar[tuple[str, ...]] = ("with_state",)
    promise: ClassVar[str] = "An emission differs from the one of its key before."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Observe neighbours. Raises ValueError if the stage has another `emit`; the rule is
        `neighbours.no_equal_neighbours`.
        """
        emit = facts.logic.emit
        if not emit.is_change:
            raise ValueError(f"the stage {facts.logic.name} does not emit `on: change`")
        has_state = options["with_state"] and facts.state_before is not None
        before = facts.newest_state if has_state else None
        emissions, expires = facts.emissions(neighbours.COLUMNS), facts.logic.ttl is not None
        return neighbours.no_equal_neighbours(emissions, emit, before, expires)


class ExpectOneFinalPerWindowAndKey(BuiltinExpectation):
    """A stage with `emit: {on: window_close}` emits one value per window and key.

    Args:
        batches: Also search so many earlier batches; 0 searches only the batch itself.
    """

    batches: Number = batch_facts.OUTBOXES_BEFORE
    success_keys: ClassVar[tuple[str, ...]] = ("batches",)
    promise: ClassVar[str] = "A window of a key is final once."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Observe finals. Raises ValueError if the stage has another `emit`; the rule is
        `observations.one_final_per_entry`.
        """
        if not facts.logic.emit.is_final:
            raise ValueError(f"the stage {facts.logic.name} does not emit `on: window_close`")
        batches = int(options["batches"])
        return observations.one_final_per_entry(
            facts.emissions(observations.FINAL_COLUMNS),
            (lambda *hashes: facts.emissions_before(batches, observations.FINAL_COLUMNS, hashes))
            if batches
            else None,
        )


class ExpectCountsToAddUp(BuiltinExpectation):
    """Each record that was read is used, quarantined, deduplicated or late; the outbox has each emission
    for sinks.
    """

    promise: ClassVar[str] = "What came in is accounted for, and the outbox has what goes out."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Compare the counts with each other and with the outbox; the rule is `counts_add_up`."""
        rows = sum(file.rows for file in facts.outbox)
        return observations.counts_add_up(facts.counts, rows, facts.lacks_erased)


class ExpectLateShareToBeAtMost(BuiltinExpectation):
    """Few records and emissions were too late for all of their windows, compared with the records read.

    Args:
        max_share: From 0 to 1. If nothing was read, the share is 0.
    """

    max_share: Number
    success_keys: ClassVar[tuple[str, ...]] = ("max_share",)
    promise: ClassVar[str] = "Few records are late."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Compare the share of late records with `max_share`; the rule is `share_at_most`."""
        return observations.share_at_most(
            facts.counts, facts.counts.late_in_stages, float(options["max_share"])
        )


class ExpectQuarantinedShareToBeAtMost(BuiltinExpectation):
    """Stages could use nearly all records and emissions that they got, compared with the records read.

    Args:
        max_share: From 0 to 1. If nothing was read, the share is 0.
    """

    max_share: Number
    success_keys: ClassVar[tuple[str, ...]] = ("max_share",)
    promise: ClassVar[str] = "Few records are in quarantine."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Compare the share of quarantined records with `max_share`; the rule is `share_at_most`."""
        return observations.share_at_most(
            facts.counts, facts.counts.quarantined_in_stages, float(options["max_share"])
        )


class ExpectEmittedShareToBeAsBefore(BuiltinExpectation):
    """The share of the records read that the stage emitted is as usual in earlier batches.

    It lies within `mean ± max(deviations * d, slack)` of their shares, where d is their standard deviation.

    Args:
        batches: The number of earlier batches, the newest ones.
        deviations: See above.
        slack: See above, in shares: 0.05 allows 15 to 25 % around 20 %.
        least_batches: With fewer earlier batches, the expectation is met.
        least_records: Batches that read fewer records are ignored; if the batch itself did, the expectation
            is met.
    """

    batches: Number = batch_facts.HISTORY_BATCHES
    deviations: Number = 3.0
    slack: Number = 0.05
    least_batches: Number = 5
    least_records: Number = 100
    success_keys: ClassVar[tuple[str, ...]] = (
        *("batches", "deviations", "slack", "least_batches", "least_records"),
    )
    promise: ClassVar[str] = "As much of what came in goes out as before."

    def observe(self, facts: StageFacts, options: dict[str, Any]) -> Observation:
        """Compare the share with those of earlier batches; the rule is `emitted_share_as_before`."""
        usual = observations.UsualRange(
            float(options["deviations"]),
            float(options["slack"]),
            int(options["least_batches"]),
            int(options["least_records"]),
        )
        return observations.emitted_share_as_before(
            facts.counts, facts.history[: int(options["batches"])], usual
        )
