"""Which files of a folder are pipelines, and the ids of their DAGs.

It imports nothing else of tidegate: shells run it to complete names while you type.
"""

from __future__ import annotations

import re
from pathlib import Path

DEFAULTS_FILE = "defaults.yaml"
"""The only YAML file of the folder that is not a pipeline: see `yaml.load`."""
HOW_TO_BEGIN = "`tidegate init NAME` writes one; TIDEGATE_PIPELINES names another folder."
"""The hint for a user who has no pipelines yet."""
_DAG_NAME = re.compile(r"[\w.-]{1,140}")
"""Airflow accepts such ids of up to 250 characters, of which a prefix takes up to 100."""
_OTHER_DAGS = re.compile(r"tidegate_maintenance|.*\.promote")
"""The ids of tidegate's other DAGs."""


def pipeline_files(folder: Path) -> list[Path]:
    """Return the folder's pipeline files, sorted by name; an empty list if the folder does not exist.

    Hidden files are none: editors and file managers leave such files beside the ones that people write.

    Example: `[path.stem for path in pipeline_files(Path("include/pipelines"))]`
    """
    return sorted(path for path in folder.glob("[!.]*.yaml") if path.name != DEFAULTS_FILE)


def is_path(name: str) -> bool:
    """Return whether a user names a pipeline by the path of its file, and not by its name in the folder."""
    return name.endswith((".yaml", ".yml"))


def path_of(name: str, folder: Path) -> Path:
    """Return the path of a pipeline's file, which need not exist, by its path or by its name in a folder.

    Example: `path_of("orders", Path("include/pipelines"))` is `include/pipelines/orders.yaml`.
    """
    return Path(name) if is_path(name) else folder / f"{name}.yaml"


def is_dag_name(name: str) -> bool:
    """Return whether the name of a pipeline file, without `.yaml`, can be the id of its DAG."""
    return bool(_DAG_NAME.fullmatch(name)) and not _OTHER_DAGS.fullmatch(name)


def dag_id_of(name: str, prefix: str = "") -> str:
    """Return the id of the DAG of a pipeline file.

    A file whose name cannot be the id of a DAG is refused, and has a DAG that says so.

    Args:
        name: The file's name, without `.yaml`.
        prefix: The prefix of all ids of the folder.

    Example: `shop_orders` for `dag_id_of("orders", "shop_")`; `orders__copy__invalid` for
    `dag_id_of("orders (copy)")`.
    """
    if is_dag_name(name):
        return prefix + name
    legal = re.sub(r"[^\w.-]", "_", name)
    return f"{prefix}{legal[:100]}_invalid"
