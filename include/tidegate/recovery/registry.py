"""The remedies, in the order in which `tidegate recover` shows them."""

from __future__ import annotations

from tidegate.recovery.accept_gap import AcceptGap
from tidegate.recovery.adopt_ledger import AdoptLedger
from tidegate.recovery.drop_plan import DropPlan
from tidegate.recovery.forget import Forget
from tidegate.recovery.give_up import GiveUp
from tidegate.recovery.lower_clock import LowerClock
from tidegate.recovery.move import Move
from tidegate.recovery.promote import Promote
from tidegate.recovery.remedy import Remedy
from tidegate.recovery.restore_progress import RestoreProgress
from tidegate.recovery.send_again import SendAgain

REMEDIES: tuple[Remedy, ...] = (
    *(AcceptGap(), DropPlan(), LowerClock(), Move(), RestoreProgress()),
    *(SendAgain(), GiveUp(), Promote(), Forget(), AdoptLedger()),
)
