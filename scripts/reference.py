"""The reference pages of the documentation, made of what the code says of itself: `make reference`.

Commands and their options come from click, keys of pipeline files from the models' JSON Schema, variables
from `tidegate.settings`. What is missing here is missing there: nothing is described in this module.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from tidegate.cli import cli
from tidegate.settings import VARIABLES
from tidegate.yaml.json_schema import file_schema
from tidegate_dev import stack

Schema = Mapping[str, Any]
DOCS = Path(__file__).resolve().parents[1] / "docs"
_DEFINITION = "#/$defs/"
_DURATION = "(ms|s|m|h|d)"


def pages() -> Mapping[str, str]:
    """Path below the documentation -> Markdown."""
    return {
        "reference/commands.md": commands_page(),
        "reference/pipeline.md": pipeline_page(),
        "reference/settings.md": settings_page(),
    }


def settings_page() -> str:
    """A table of the environment's variables."""
    variables = (*VARIABLES, *stack.VARIABLES)
    rows = [(f"`{variable.name}`", variable.meaning, variable.default) for variable in variables]
    intro = (
        "Variables of the environment. Nothing secret ever comes from a pipeline file or an argument. Under "
        "Airflow clusters, databases, the ledger and Spark may be "
        "[connections](../install.md#connections) instead."
    )
    return f"# Settings\n\n{intro}\n\n{_table(('variable', 'what', 'default'), rows)}\n"


def commands_page() -> str:
    """Each command of `tidegate` with its arguments, help and options."""
    root = click.Context(cli, info_name="tidegate")
    return "\n\n".join(["# Commands", _help(cli), *_commands(root, level=2)]) + "\n"


def _commands(parent: click.Context, level: int) -> Iterator[str]:
    assert isinstance(parent.command, click.Group)
    for name in parent.command.list_commands(parent):
        command = parent.command.get_command(parent, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=parent)
        yield f"{'#' * level} {context.command_path}"
        yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
        yield _help(command)
        options = [option for option in command.params if isinstance(option, click.Option)]
        if options:
            yield _table(("option", "what", "default"), [_option(option, context) for option in options])
        if isinstance(command, click.Group):
            yield from _commands(context, level + 1)


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    """Return an option's form, its meaning and its default."""
    names = " / ".join((*option.opts, *option.secondary_opts))
    shows_value = not (option.is_flag or option.count)
    written = f"`{names} {option.make_metavar(context)}`" if shows_value else f"`{names}`"
    default = option.default if option.show_default and option.default not in (None, "") else None
    return written, option.help or "", "" if default is None else f"`{default}`"


def pipeline_page() -> str:
    """Each key of a pipeline file, and of `defaults.yaml`: type, default and meaning."""
    intro = (
        "Every key that a pipeline file may have. For a file with every part, and the page about each, "
        "see [write a pipeline file](../pipeline-file.md); `tidegate validate` reports every mistake with "
        "its line and the fix, and `tidegate schema` prints this page for editors.\n\n"
        "A *duration* is a whole number and a unit: `15ms`, `30s`, `10m`, `1h`, `2d`. A *number* may have "
        "underscores: `5_000_000`."
    )
    parts = ["# The pipeline file", intro, *_sections(file_schema("pipeline"))]
    defaults = file_schema("defaults")
    parts += ["## defaults.yaml", defaults["description"]]
    parts.append(_keys("", {**defaults, "$defs": {}}, "airflow"))
    return "\n\n".join(parts) + "\n"


def _sections(schema: Schema) -> Iterator[str]:
    """The file's own keys, then a part for each mapping in it, with a table for each form that it has."""
    yield "## At the top"
    yield _keys("", schema)
    for path, forms in _mappings("", schema, schema["$defs"]).items():
        yield f"## {path} {{#{_anchor(path)}}}"
        for form in forms:
            words = [
                f"{name}: {field['const']}" for name, field in form["properties"].items() if "const" in field
            ]
            if words:
                yield f"### {words[0]}"
            yield _prose(form["description"])
            yield _keys(path, form)


def _mappings(path: str, part: Schema, definitions: Mapping[str, Schema]) -> dict[str, list[Schema]]:
    """Path of a key -> the models that its value may be, of all keys at and below `path`."""
    mappings: dict[str, list[Schema]] = {}
    for name, field in part["properties"].items():
        below = _below(path, name)
        models = [definitions[reference] for reference in _references(field)]
        inside = [_mappings(below, model, definitions) for model in models]
        for nested in ({below: models} if models else {}, *inside):
            for nested_path, nested_models in nested.items():
                existing = mappings.setdefault(nested_path, [])
                existing += [model for model in nested_models if model not in existing]
    return mappings


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _keys(path: str, part: Schema, linked: str = "") -> str:
    """Return a table of keys. `linked` is the path of the key whose own keys have another table."""
    required = part.get("required", ())
    rows = []
    for name, field in part["properties"].items():
        below = linked or _below(path, name)
        default = "required" if name in required else _default(field.get("default"))
        rows.append((f"`{name}`", _type(field, below), default, _prose(field["description"])))
    return _table(("key", "type", "default", "what"), rows)


def _references(part: Schema) -> list[str]:
    """The names of the models that a key's value may be."""
    if "$ref" in part:
        return [part["$ref"].removeprefix(_DEFINITION)]
    inside = [*part.get("anyOf", ()), *part.get("oneOf", ()), part.get("items")]
    inside.append(part.get("additionalProperties"))
    return [name for choice in inside if isinstance(choice, dict) for name in _references(choice)]


def _type(part: Schema, path: str) -> str:
    """Return a type in words. A mapping that has its own keys links to their table."""
    if "$ref" in part:
        return f"[mapping](#{_anchor(path)})"
    if choices := [*part.get("anyOf", ()), *part.get("oneOf", ())]:
        names = [_type(choice, path) for choice in choices if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "const" in part or "enum" in part:
        return ", ".join(f"`{word}`" for word in part.get("enum", [part.get("const")]))
    types = part.get("type", "string")
    if types == "array":
        return f"list of {_plural(_type(part['items'], path))}"
    if types == "object":
        values = part["additionalProperties"]
        return "names with values" if values is True else f"names with {_plural(_type(values, path))}"
    if types == "boolean":
        return "`true` or `false`"
    if "integer" in types or "number" in types:
        return "number"
    return "duration" if _DURATION in part.get("pattern", "") else "text"


def _plural(type_: str) -> str:
    # a word in backticks is written in the file as it is
    return re.sub(r"(?<!`)\b(mapping|number|text|duration)\b(?!s)", r"\1s", type_)


def _default(value: Any) -> str:
    if value in (None, [], "") or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _anchor(path: str) -> str:
    return path.replace(".", "-").replace("_", "-")


def _prose(text: str) -> str:
    """A docstring's first part, on one line."""
    return " ".join(text.split("\n\n")[0].split())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def write_pages() -> None:
    """Write the pages into `docs/`, where they are read as files, too."""
    for path, text in pages().items():
        page = DOCS / path
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)


if __name__ == "__main__":
    write_pages()
