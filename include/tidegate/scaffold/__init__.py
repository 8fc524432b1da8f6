"""New pipelines: make a file, a case that it passes and a suite from a user's draft.

This package never prints.
"""

from tidegate.scaffold.draft import WAYS, Draft
from tidegate.scaffold.files import pipeline_texts
from tidegate.scaffold.pipeline import SCHEMA_FILE

__all__ = ["SCHEMA_FILE", "WAYS", "Draft", "pipeline_texts"]
