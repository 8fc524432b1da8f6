"""Run Great Expectations on a batch. Importing `gate`, and what it imports, takes seconds."""

from tidegate.quality.beside import CheckBeside

__all__ = ["CheckBeside"]
