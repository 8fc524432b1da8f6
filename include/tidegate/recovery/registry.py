"""The remedies, in the order in which `tidegate recover` shows them."""

from __future__ import annotations

from tidegate.recovery.accept_gap import AcceptGap
from tidegate.recovery.drop_plan import DropPlan
from tidegate.recovery.remedy import Remedy

REMEDIES: tuple[Remedy, ...] = (AcceptGap(), DropPlan())
