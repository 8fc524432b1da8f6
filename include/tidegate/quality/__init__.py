"""The Great Expectations edge."""

from tidegate.quality.gate import Verdict, check

__all__ = ["Verdict", "check"]
