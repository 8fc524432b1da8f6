"""A fault: which failpoint does what, at which hit, in which step's process of the history."""

from __future__ import annotations

import re
from dataclasses import dataclass

ACTIONS = ("kill", "kill_after", "raise", "lose", "pause")
_TEXT = re.compile(
    r"((?P<history>\w+)/)?(?P<batch>\d)\.(?P<step>\w+):(?P<name>[\w.]+)=(?P<action>\w+)@(?P<hit>\d)"
)
PLAIN = "plain"


@dataclass(frozen=True)
class Fault:
    """Written `1.publish:publish.commit=kill_after@2`: in the publish step of the first batch, and so on.

    `doctor/2.gap:…` is about the history `doctor`, and what is done there before the second batch.
    """

    batch: int
    step: str
    name: str
    action: str
    hit: int
    history: str = PLAIN

    @property
    def entry(self) -> str:
        """As TIDEGATE_FAILPOINTS has it."""
        return f"{self.name}={self.action}@{self.hit}"

    def __str__(self) -> str:
        history = "" if self.history == PLAIN else f"{self.history}/"
        return f"{history}{self.batch}.{self.step}:{self.entry}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The inverse of `str`."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no fault; write it as 1.publish:publish.commit=kill@1")
        where = int(found["batch"]), found["step"]
        return cls(*where, found["name"], found["action"], int(found["hit"]), found["history"] or PLAIN)


Case = tuple[Fault, ...]
"""The faults of one run: one; or a second one, which waits in the tries that follow the first."""


def case_text(case: Case) -> str:
    """As `--only` takes it."""
    return "+".join(map(str, case))


def parse_case(text: str) -> Case:
    """The inverse of `case_text`."""
    return tuple(Fault.parse(each) for each in text.split("+"))
