"""`tidegate down`: end what `tidegate up` has started."""

from __future__ import annotations

import click


@click.command()
def down() -> None:
    """End what `up` started."""
    from tidegate.settings import Settings
    from tidegate_dev import stack

    was_up = stack.down(Settings.from_environment().home)
    click.echo("It is down." if was_up else "Nothing was up.")
