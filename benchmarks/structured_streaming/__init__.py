"""The pipeline `availability` as users of Spark Structured Streaming write it. See README.md."""
