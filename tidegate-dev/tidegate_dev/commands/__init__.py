"""The commands that this distribution adds to `tidegate`, by the entry point `tidegate.commands`."""

COMMANDS = {name: f"{__name__}.{name}" for name in ("demo", "up", "down")}
"""The name of each command -> its module, in which the command has the same name."""
