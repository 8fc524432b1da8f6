"""What each command is called with. What it does is in the module of `tidegate.cli` that its body imports.

That import is late on purpose, and the only one that a body has: `--help`, and a command of little work, are
not to wait for Spark, Arrow, databases and the grammar. Nothing here imports more than click.
"""
