"""What a step's process needs, imported before it is forked: otherwise each would spend seconds on it."""

import alembic.command
import alembic.config
import deltalake
import kafka
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

import tidegate.batch
import tidegate.engine.batch
import tidegate.engine.explain
import tidegate.inspect
import tidegate.lake
import tidegate.ledger.database
import tidegate.maintenance

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
