"""`aliases`: former names of columns, in a source's records or in a stage's state.

Both places have the same grammar: column -> its older names, the newest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from tidegate.spec import names
from tidegate.spec.mistakes import mistake
from tidegate.spec.scope import distinct, require_filled, suggest_column

ColumnAliases = Annotated[
    tuple[Annotated[str, AfterValidator(names.check_column)], ...],
    BeforeValidator(require_filled),
    AfterValidator(distinct),
]
"""The older names of one column."""


def check_aliases(
    aliases: Mapping[str, tuple[str, ...]], columns: Iterable[str] | None
) -> dict[str, tuple[str, ...]]:
    """Check that each alias belongs to an existing column, and that no name belongs to two columns.

    Args:
        aliases: Column -> its older names.
        columns: The columns that exist; None if they have mistakes, so that nothing can be said about them.

    Returns the aliases. Raises a mistake otherwise.

    Example: `check_aliases({"quantity": ("qty",)}, ["id", "quantity"])`
    """
    existing = None if columns is None else [*columns]
    # Every name, present or former -> the column that has it; a name may belong to one column only.
    owners = {name: name for name in existing or ()}
    for column, older in aliases.items():
        if existing is not None and column not in existing:
            raise mistake(f"the column `{column}` does not exist", suggest_column(column, existing))
        for name in older:
            if (owner := owners.get(name)) is not None:
                what = "a column itself" if owner == name else f"an older name of `{owner}` already"
                fix = "Name what the column was called before; a name that is in use belongs to one column."
                raise mistake(f"`{name}`, an older name of `{column}`, is {what}", fix)
            owners[name] = column
    return dict(aliases)
