"""Repair a stream that cannot continue: find the cause, show what would be done, do it, and record that."""

from tidegate.recovery.recover import UnknownCause, carry_out, find_proposals, stream_to_recover
from tidegate.recovery.registry import REMEDIES
from tidegate.recovery.remedy import Proposal, Remedy
from tidegate.recovery.situation import Options, Situation

__all__ = [
    "REMEDIES",
    "Options",
    "Proposal",
    "Remedy",
    "Situation",
    "UnknownCause",
    "carry_out",
    "find_proposals",
    "stream_to_recover",
]
