"""Arrow from end to end: one Spark job per batch, whose tasks decide and write."""
