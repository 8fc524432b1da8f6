"""The commands of `tidegate`: one module per command, or per group, which has the name of the command.

A module imports at its top only what takes no time, for its own `--help`. What takes time (Spark, Arrow,
databases, the grammar) is imported by the functions that need it.
"""

COMMANDS = {
    "init": "Write a new pipeline NAME with a case that it passes and a quality suite.",
    "import": "Translate the files of another system into pipeline files.",
    "schema": "Print the JSON Schema of pipeline files, or of `defaults.yaml` beside them, for editors.",
    "test": (
        "Run case files (or all in folders), without Kafka or Airflow; exit 1 with a diff if any differs."
    ),
    "simulate": ("Print what PIPELINE emits for an input, as JSON lines, with the reason of each emission."),
    "validate": "Check pipeline files, or all in folders; without a PATH, those of the pipelines folder.",
    "plan": "Show what the next batch of PIPELINE would read.",
    "run": "Run one batch of PIPELINE, all five steps, without Airflow.",
    "drain": "Emit everything that the stages of PIPELINE hold back, in a batch that reads nothing.",
    "status": "Show every pipeline's head: last batch, offsets, lag, what is planned, who is at work.",
    "history": "Show the batches of PIPELINE, the newest first: counts, seconds per step, and what failed.",
    "ui": "Serve the pages about all pipelines on this machine, read-only and without Airflow.",
    "state": (
        "Show the last known state of each key of PIPELINE, and of each of its windows, now or as of a batch."
    ),
    "emissions": "Show what PIPELINE sent out.",
    "quarantine": (
        "Work on the input of a pipeline that could not be used, and on emissions that a sink would refuse."
    ),
    "explain": (
        "Tell why KEY of PIPELINE was emitted, or not: what came in, what was known, and what went out."
    ),
    "shadow": "Compare what PIPELINE would send with what another job sent to a topic.",
    "check": (
        "Evaluate quality suites over what PIPELINE has sent out, or over its state, without running "
        "anything."
    ),
    "quality": "Quality suites of Great Expectations.",
    "generation": "Try another generation of a pipeline beside the running one, and let it take its place.",
    "compact": (
        "Fold the state of PIPELINES now, or of all where it is due; then remove files that nobody reads."
    ),
    "doctor": (
        "Check the settings, the stores and every pipeline (or PIPELINE); say what resolves what is wrong."
    ),
    "recover": (
        "Repair PIPELINE where its batches cannot continue: name the cause, and what can be done about it."
    ),
    "erase": (
        "Erase keys of PIPELINE: from state, outboxes, quarantine, Data Docs and tables, then from its sinks."
    ),
    "migrate": (
        "Bring the ledger to the schema of this version of tidegate; a database without tables gets them."
    ),
}
"""Each command, in the order of a user's day -> the first sentence of its help, which `tidegate --help` shows
without importing the command."""
