"""The batch protocol against an in-memory world, in every order that a seed can think of.

The real steps, the real publishers to topics and endpoints, and the real reader of the logs' ends run
against hand-written stand-ins: `ledger`, `sinks` (SQL and Delta tables: their real publishers do not run
here) and `receivers` (of an HTTP sink's requests), each held against the real ones by contract tests;
`broker` with `clients`, `compute`, and the clock and scheduler of `world`. Nothing here reads the machine's
time or randomness: a seed says everything.
"""
