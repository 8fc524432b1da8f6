"""The `kafka` sink: emissions as messages of a topic, in transactions with a progress record."""
