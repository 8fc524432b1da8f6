"""The part of a trigger's form that requests an action in place of a batch, such as a promotion.

An action is a run of the pipeline's own DAG: the rights on that DAG cover it, the audit log names who has
triggered it with which parameters, and it waits until no batch is at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

ACTION = "action"
ACTIONS = {
    "check": "check: what would stop the next run",
    "compact": "compact: fold the state's files",
    "discard": "discard: nobody will use the chosen records of quarantine",
    "diff": "diff: what another generation would change",
    "promote": "promote: let a generation take charge",
    "rollback": "rollback: put the generation before in charge again",
    "recover": "recover: repair a stream that cannot continue",
}
"""Action -> what it does, as the form shows it."""
REMEDIES = (
    *("accept-gap", "drop-plan", "lower-clock", "restore-progress"),
    *("send-again", "give-up", "promote", "forget", "adopt-ledger"),
)
"""The remedies of `recover` that need no file of the machine that it runs on."""
_OPTIONS = {
    "diff": ("action_generation",),
    "promote": ("action_generation", "action_net"),
    "rollback": ("action_net",),
    "recover": ("action_remedy", "action_confirm"),
}
"""Action -> the parameters that it takes."""
_NEEDS = {"diff": "action_generation", "promote": "action_generation"}
_SECTION = "Action in place of a batch"


def action_params() -> dict[str, Param]:
    """Return the part of a trigger's form that requests an action.

    Example: `DAG(…, params=action_params())`
    """
    return {
        ACTION: Param(
            None,
            type=["null", "string"],
            enum=[None, *ACTIONS],
            values_display=dict(ACTIONS),
            title="Action",
            description="Plan no batch, and do this instead; the log of the first task has the result. "
            "`discard` takes the fields of the replay that choose records.",
            section=_SECTION,
        ),
        "action_generation": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Generation",
            description="For diff and promote: the generation that would take, or takes, charge.",
            section=_SECTION,
        ),
        "action_net": Param(
            False,
            type="boolean",
            title="Net",
            description="For promote and rollback: send only the differences from what consumers have.",
            section=_SECTION,
        ),
        "action_remedy": Param(
            None,
            type=["null", "string"],
            enum=[None, *REMEDIES],
            title="Remedy",
            description="For recover: only this remedy. Empty: show all that can help.",
            section=_SECTION,
        ),
        "action_confirm": Param(
            False,
            type="boolean",
            title="Do it",
            description="For recover: do what the remedy shows. Off: only show it.",
            section=_SECTION,
        ),
    }


@dataclass(frozen=True)
class ActionRequest:
    """An action with its parameters; see `action_params`."""

    name: str
    generation: int | None = None
    is_net: bool = False
    remedy: str | None = None
    is_confirmed: bool = False

    @property
    def takes_records(self) -> bool:
        """Whether the fields of the replay choose records for it."""
        return self.name == "discard"


def read_action(params: Mapping[str, Any]) -> ActionRequest | None:
    """Return the action that the parameters of a run request; None if they request none.

    Raises AirflowFailException for an unknown action, and for parameters that the action does not take, or
    lacks: nothing that a person has written is ignored.
    """
    name = params.get(ACTION) or None
    given = [option for option in action_params() if option != ACTION and params.get(option)]
    if name is not None and name not in ACTIONS:
        raise AirflowFailException(f"There is no action {name!r}. There are: {', '.join(ACTIONS)}.")
    surplus = [option for option in given if option not in _OPTIONS.get(name or "", ())]
    if surplus:
        what = f"the action `{name}`, which does not take that" if name else "no `action`"
        raise AirflowFailException(
            f"The run was triggered with {', '.join(surplus)}, and with {what}. Nothing was done."
        )
    if name in _NEEDS and not params.get(_NEEDS[name]):
        raise AirflowFailException(f"The action `{name}` needs `{_NEEDS[name]}`. Nothing was done.")
    if params.get("action_confirm") and not params.get("action_remedy"):
        raise AirflowFailException("`action_confirm` goes with `action_remedy`. Nothing was done.")
    if name is None:
        return None
    return ActionRequest(
        name,
        params.get("action_generation"),
        bool(params.get("action_net", False)),
        params.get("action_remedy") or None,
        bool(params.get("action_confirm", False)),
    )
