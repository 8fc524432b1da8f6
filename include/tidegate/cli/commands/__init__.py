"""What each command is called with. What it does is in the module of `tidegate.cli` that its body imports.

That import is late on purpose, and the only one that a body has: `--help`, and a command of little work, are
not to wait for Spark, Arrow, databases and the grammar. Nothing here imports more than click.
"""

COMMANDS = {
    **dict.fromkeys(("init", "schema"), f"{__name__}.writing"),
    **dict.fromkeys(("test", "simulate"), f"{__name__}.cases"),
    **dict.fromkeys(("validate", "plan", "run", "drain", "status"), f"{__name__}.batches"),
    **dict.fromkeys(("history", "state", "emissions"), f"{__name__}.reading"),
    "quarantine": f"{__name__}.quarantine",
    "explain": f"{__name__}.reading",
    **dict.fromkeys(("check", "quality"), f"{__name__}.quality"),
    "generation": f"{__name__}.generations",
    "compact": f"{__name__}.batches",
    "doctor": f"{__name__}.operating",
    "recover": f"{__name__}.recovering",
    "migrate": f"{__name__}.operating",
}
"""The name of each command, in the order of a user's day -> its module, in which it has the same name."""
