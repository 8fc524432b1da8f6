"""Repair a stream that cannot continue: find the cause, show what would be done, do it, and record that."""

from tidegate.recovery.recover import REMEDIES, UnknownCause, carry_out, find_proposals, stream_to_recover
from tidegate.recovery.remedy import Options, Proposal, Remedy, Situation

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
