"""List the packages, which pyproject.toml cannot: those of this folder, and the demo's project."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["tidegate_dev*"], exclude=["*.__pycache__", "*.__pycache__.*"]),
        "tidegate_dev.demo.project.dags",
        "tidegate_dev.demo.project.include.expectations",
        "tidegate_dev.demo.project.include.pipelines",
    ]
)
