"""`tidegate import`: pipeline files from the files of other systems."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import as_json, text_of
from tidegate.cli.output import say, show
from tidegate.numerals import counted

if TYPE_CHECKING:
    from tidegate.ksql.statements import Import


@click.group(name="import")
def import_() -> None:
    """Translate the files of another system into pipeline files."""


@import_.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the pipeline files; by default TIDEGATE_PIPELINES.",
)
@click.option("--dry-run", is_flag=True, help="Show the remarks, and write nothing.")
@as_json
def ksql(file: Path, folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """Translate ksqlDB's statements in FILE.sql: each query becomes a pipeline.

    A statement without an equivalent is a remark, with its line, the reason and what to do instead. Exit code
    2 if there is one; the other statements are translated all the same. No file is overwritten.
    """
    from tidegate.cli.output import require_new, write_texts
    from tidegate.ksql.statements import Import, import_texts
    from tidegate.settings import Settings

    imported = Import(str(file)).read(text_of(file, "Name a file of statements."))
    texts = import_texts(imported, folder or Settings.from_environment().pipelines)
    if not dry_run:
        require_new(texts, "Remove the files, or name another --to.")
        write_texts(texts)
    _report(imported, [] if dry_run else list(texts), as_json)
    if imported.remarks:
        sys.exit(2)


_OF_RECORDS = (
    "No statement says whether records write the names of fields in upper or lower case, or which time zone "
    "the server of ksqlDB has: see docs/import-ksql.md."
)


def _report(imported: Import, files: list[Path], as_json: bool) -> None:
    if as_json:
        show([vars(remark) for remark in imported.remarks], True)
        return
    for path in files:
        say(f"Written: {path}")
    for remark in imported.remarks:
        say(str(remark))
    inexact = sum(1 for remark in imported.remarks if remark.imported)
    say(
        f"{counted(len(imported.pipelines), 'pipeline')}, {inexact} with another result as remarked; not "
        f"translated: {counted(len(imported.remarks) - inexact, 'statement')}."
    )
    if imported.pipelines:
        say(_OF_RECORDS)
