"""The Great Expectations edge. `gate` alone imports it, which takes seconds."""

from tidegate.quality.beside import CheckBeside
from tidegate.quality.verdict import ExpectationResult, Verdict

__all__ = ["CheckBeside", "ExpectationResult", "Verdict"]
