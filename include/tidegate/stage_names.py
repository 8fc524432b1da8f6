"""Names that follow from the name of a stage.

Spark's workers and reports import this module, and not the model, which takes long to import.
"""

from __future__ import annotations


def late_name(stage: str) -> str:
    """Return the name of a stage's late records as a stage: no other stage can have a name with a dot.

    Example: `late_name("hours")` is `hours.late`.
    """
    return f"{stage}.late"
