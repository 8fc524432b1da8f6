"""`tidegate schema`: print the JSON Schema of pipeline files."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("kind", type=click.Choice(("pipeline", "defaults")), default="pipeline")
def schema(kind: str) -> None:
    """Print the JSON Schema of pipeline files, or of `defaults.yaml` beside them, for editors.

    A file that begins with `# yaml-language-server: $schema=pipeline.schema.json` is checked while it is
    typed, where that file has what this prints.
    """
    from tidegate.yaml.json_schema import file_schema

    print(json.dumps(file_schema(kind), indent=2, ensure_ascii=False))
