"""The Great Expectations edge. `gate` and what it stands on import it, which takes seconds."""

from tidegate.quality.beside import CheckBeside

__all__ = ["CheckBeside"]
