"""The Spark edge: session, source, shuffle, kernel tasks, and what they write."""
