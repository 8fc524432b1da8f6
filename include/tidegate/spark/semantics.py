"""The meaning of Spark's expressions: set by tidegate in every session, however the session was made or set.

A batch is a pure function of its plan. A `spark-defaults.conf`, the conf of an Airflow connection or a
notebook may change how fast Spark is, but not what it computes.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

PINNED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # ${env:…} in an expression would read the driver's environment
    "spark.sql.variable.substitute": "false",
    # missing files are an error, never "no data"
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # days and times before 1582 and 1900 are written and read as they are
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Setting -> value, for settings that change the result of an expression."""

_FAMILIES = (
    *("spark.sql.legacy.", "spark.sql.ansi.", "spark.sql.parser.", "spark.sql.json", "spark.sql.session."),
    *("spark.sql.parquet.binaryAsString", "spark.sql.parquet.int96", "spark.sql.parquet.inferTimestampNTZ"),
    *("spark.sql.parquet.fieldId", "spark.sql.parquet.mergeSchema", "spark.sql.parquet.outputTimestampType"),
    *("spark.sql.columnNameOfCorruptRecord", "spark.sql.sources.partitionColumnTypeInference"),
    *("spark.sql.charAsVarchar", "spark.sql.readSideCharPadding", "spark.sql.optimizer.excludedRules"),
)
"""Prefixes of settings that are reset to Spark's own default, unless they are pinned."""


def pin_semantics(spark: SparkSession) -> None:
    """Set the session to the pinned semantics. Repeat it for each batch: a session may be shared."""
    for name in spark.conf.getAll:
        if name.startswith(_FAMILIES) and name not in PINNED and spark.conf.isModifiable(name):
            spark.conf.unset(name)
    for name, value in PINNED.items():
        spark.conf.set(name, value)
