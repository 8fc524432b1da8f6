"""The commands that this distribution adds to `tidegate`, by the entry point `tidegate.commands`."""

COMMANDS = {
    "demo": (
        "Run the whole line on this machine: Kafka, Spark, Airflow, two waves of events, and check the "
        "result."
    ),
    "up": "Start Kafka, Spark and Airflow here, with the demo's first events, and leave them running.",
    "down": "End what `up` started.",
}
"""Each command -> the first sentence of its help; see `tidegate.cli.commands.COMMANDS`."""
