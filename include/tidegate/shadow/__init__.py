"""Compare a pipeline with a job that runs today, before it takes the job's place. Nothing is written."""

from tidegate.shadow.computed import BY_RECORDS, Bounds
from tidegate.shadow.emission import SentEmission, ShadowClass
from tidegate.shadow.report import Request, ShadowReport, shadow
from tidegate.shadow.topic import OtherTopic

__all__ = [
    "BY_RECORDS",
    "Bounds",
    "OtherTopic",
    "Request",
    "SentEmission",
    "ShadowClass",
    "ShadowReport",
    "shadow",
]
