"""The commands of `tidegate`: one module per command, or per group, which has the name of the command.

A module imports at its top only what takes no time, since `--help` imports all of them. What takes time
(Spark, Arrow, databases, the grammar) is imported by the functions that need it.
"""

_NAMES = (
    *("init", "schema", "test", "simulate", "validate", "plan", "run", "drain", "status", "history", "state"),
    *("emissions", "quarantine", "explain", "check", "quality", "generation", "compact", "doctor", "recover"),
    "migrate",
)
COMMANDS = {name: f"{__name__}.{name}" for name in _NAMES}
"""The name of each command, in the order of a user's day -> its module, in which it has the same name."""
