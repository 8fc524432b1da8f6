"""What a step's process needs, imported before it is forked: otherwise each would spend seconds on it."""

import alembic.command
import alembic.config
import deltalake.fs
import kafka.admin
import pandas
import psycopg
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pyspark.sql.connect.session
import pyspark.sql.functions
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite

import kafka
import tidegate.batch
import tidegate.inspect
import tidegate.ledger.database
import tidegate.maintenance
import tidegate.spark.batch
import tidegate.spark.explain
import tidegate.storage

__all__ = [
    "alembic",
    "deltalake",
    "kafka",
    "pandas",
    "psycopg",
    "pyarrow",
    "pyspark",
    "sqlalchemy",
    "tidegate",
]
