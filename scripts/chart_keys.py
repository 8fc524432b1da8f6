"""Check the blocks of docs/kubernetes.md against the schemas of their readers, and keep what was checked.

    uv run --with kubernetes==33.1.0 --with jsonschema python -m scripts.chart_keys \\
        --airflow values.schema.json --operator values.yaml --crd sparkoperator.k8s.io_sparkconnects.yaml

The files are those of the charts' versions that the page names. Writes tests/docs/chart_keys.json: file of
the page -> paths of its keys. A test holds the page to it, so that a new key has to be checked.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kubernetes.md"
CHECKED = ROOT / "tests" / "docs" / "chart_keys.json"
_OPEN = "x-kubernetes-preserve-unknown-fields"


def page_files() -> Mapping[str, list[Any]]:
    """The YAML files of the page: name -> documents."""
    blocks = re.findall(r'^```yaml title="([^"]+)"\n(.*?)^```$', PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return {name: list(yaml.safe_load_all(text)) for name, text in blocks}


def key_paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all keys in a document, with `[]` for the items of lists."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield f"{path}.{key}".lstrip(".")
            yield from key_paths(below, f"{path}.{key}".lstrip("."))
    if isinstance(value, list):
        for item in value:
            yield from key_paths(item, f"{path}[]")


def paths_of(documents: list[Any]) -> list[str]:
    """Return the paths of all documents of a file. The paths of a document with a kind begin with it."""
    kinds = [f"{document['kind']}." if "kind" in document else "" for document in documents]
    pairs = zip(kinds, documents, strict=True)
    return sorted({f"{kind}{path}" for kind, document in pairs for path in key_paths(document)})


def check_schema(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str = "") -> None:
    """Each key is one that the JSON Schema names, or below one that it leaves open. Raises LookupError."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = root["definitions"][name]
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            check_schema(item, schema["items"], root, f"{path}[]")
    if not isinstance(value, dict) or schema.get(_OPEN):
        return
    named, additional = schema.get("properties", {}), schema.get("additionalProperties")
    for key, below in value.items():
        if key in named:
            check_schema(below, named[key], root, f"{path}.{key}")
        elif isinstance(additional, dict):
            check_schema(below, additional, root, f"{path}.{key}")
        elif named or additional is False:
            raise LookupError(f"{path}.{key} is not in the schema")


def check_defaults(value: Any, defaults: Any, path: str = "") -> None:
    """Each key is one of the chart's defaults. Raises LookupError."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key not in (defaults or {}):
                raise LookupError(f"{path}.{key} is not among the chart's values")
            check_defaults(below, defaults[key], f"{path}.{key}")


def check_model(value: Any, type_: str, path: str) -> None:
    """Each key is one of the Kubernetes client's model. Raises LookupError."""
    client = importlib.import_module("kubernetes.client")  # no dependency of ours

    if match := re.fullmatch(r"list\[(.+)\]", type_):
        for item in value:
            check_model(item, match[1], f"{path}[]")
    elif isinstance(value, dict) and not type_.startswith("dict("):
        model = getattr(client, type_)
        types = {key: model.openapi_types[name] for name, key in model.attribute_map.items()}
        for key, below in value.items():
            if key not in types:
                raise LookupError(f"{path}.{key} is not in {type_}")
            check_model(below, types[key], f"{path}.{key}")


@click.command()
@click.option("--airflow", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--operator", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--crd", type=click.Path(exists=True, path_type=Path), required=True)
def main(airflow: Path, operator: Path, crd: Path) -> None:
    """Check the page, and write what was checked."""
    from jsonschema import validate

    files = page_files()
    schema = json.loads(airflow.read_text())
    validate(files["airflow.yaml"][0], schema)
    check_schema(files["airflow.yaml"][0], schema, schema)
    check_defaults(files["operator.yaml"][0], yaml.safe_load(operator.read_text()))
    (version,) = yaml.safe_load(crd.read_text())["spec"]["versions"]
    resource = version["schema"]["openAPIV3Schema"]
    validate(files["spark-connect-operator.yaml"][0], resource)
    spec = {"spec": files["spark-connect-operator.yaml"][0]["spec"]}
    check_schema(spec, resource, resource)
    for name in ("migrate.yaml", "spark-connect.yaml"):
        for document in files[name]:
            check_model(document, f"V1{document['kind']}", document["kind"])
    checked = {name: paths_of(documents) for name, documents in files.items()}
    CHECKED.write_text(json.dumps(checked, indent=1) + "\n")
    click.echo(f"{sum(map(len, checked.values()))} keys of {len(checked)} files are there.")


if __name__ == "__main__":
    main()
