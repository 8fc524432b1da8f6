"""The Spark edge: session, data source, shuffle, kernel tasks, and what they write."""
