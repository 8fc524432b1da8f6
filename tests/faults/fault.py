"""A fault: which failpoint does what, at which hit, in which step's process of the history.

What is done from outside (`OUTSIDE`) needs a failpoint, too: the process that meets it stands still until
then, so that it is done at that moment and no other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ACTIONS = ("kill", "kill_after", "raise", "lose", "pause")
OUTSIDE = {
    "lose_server": "SIGKILL to the server and its workers; another one is started when the step has ended",
    "restart_server": "it is ended in good order, and another one started at once",
    "hang_server": "SIGSTOP to it and its workers; they go on when the step has ended",
    "lose_answer": "the step stands still, the server ends the job, and is lost before the step goes on",
    "kill_client": "SIGKILL to the step; the server goes on, also while it is tried again",
    "pause_client": "the step stands still until another run has finished; the server goes on",
}
"""What is done to a Spark Connect server, or to the step that uses it. With `_after`: after the effect."""
_AFTER = "_after"
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
        """Return the entry that is noted when the fault has happened."""
        return f"{self.name}={self.action}@{self.hit}"

    @property
    def outside(self) -> str | None:
        """Return the action of `OUTSIDE`, or None if the failpoint itself does it."""
        action = self.action.removesuffix(_AFTER)
        return action if action in OUTSIDE else None

    @property
    def half(self) -> tuple[int, bool]:
        """Return the batch, and whether it is decided: each half of a batch can have a fault in one run."""
        return self.batch, self.step == "publish"

    @property
    def armed(self) -> str:
        """Return the value of TIDEGATE_FAILPOINTS: the entry, or that of the process which stands still."""
        if self.outside is None:
            return self.entry
        return f"{self.name}=pause{_AFTER if self.action.endswith(_AFTER) else ''}@{self.hit}"

    def __str__(self) -> str:
        history = "" if self.history == PLAIN else f"{self.history}/"
        return f"{history}{self.batch}.{self.step}:{self.entry}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The inverse of `str`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no fault; write it as 1.publish:publish.commit=kill@1")
        where = int(match["batch"]), match["step"]
        return cls(*where, match["name"], match["action"], int(match["hit"]), match["history"] or PLAIN)


Case = tuple[Fault, ...]
"""The faults of one run of a history: one; or a second one, which waits in the tries that follow the first;
or some at moments between which a worker looks, see `catalogue.joined`.
"""


def case_text(case: Case) -> str:
    """Return a case as `--only` takes it."""
    return "+".join(map(str, case))


def parse_case(text: str) -> Case:
    """The inverse of `case_text`."""
    return tuple(Fault.parse(part) for part in text.split("+"))
