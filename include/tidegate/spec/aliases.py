"""`aliases`: what columns were called before, of a source's records and of what a stage keeps.

The grammar is one in both places: column -> its older names, the newest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from tidegate.spec import names
from tidegate.spec.mistakes import mistake
from tidegate.spec.scope import among, distinct, filled

ColumnAliases = Annotated[
    tuple[Annotated[str, AfterValidator(names.check_column)], ...],
    BeforeValidator(filled),
    AfterValidator(distinct),
]
"""The older names of one column."""


def check_aliases(
    aliases: Mapping[str, tuple[str, ...]], columns: Iterable[str] | None
) -> dict[str, tuple[str, ...]]:
    """Each is of a column that there is, and no name is two columns'. `columns`: None, if not known."""
    known = None if columns is None else [*columns]
    owners = {name: name for name in known or ()}
    for column, older in aliases.items():
        if known is not None and column not in known:
            raise mistake(f"the column `{column}` does not exist", among(column, known))
        for name in older:
            if (owner := owners.get(name)) is not None:
                what = "a column itself" if owner == name else f"an older name of `{owner}` already"
                fix = "Name what the column was called before; a name that is in use belongs to one column."
                raise mistake(f"`{name}`, an older name of `{column}`, is {what}", fix)
            owners[name] = column
    return dict(aliases)
