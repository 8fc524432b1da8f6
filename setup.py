"""What pyproject.toml cannot say: which packages there are. The folders of all but two it names itself."""

from setuptools import find_namespace_packages, setup

_NO_CODE = ["*.__pycache__", "*.__pycache__.*"]

setup(
    packages=[
        *find_namespace_packages("include", exclude=_NO_CODE, include=["tidegate*"]),
        *find_namespace_packages("plugins", exclude=_NO_CODE, include=["tidegate_airflow*"]),
        "tidegate_airflow.spark_jobs",
    ]
)
