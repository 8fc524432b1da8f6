"""The `kafka` sink: sends emissions as messages of a topic, in transactions with a progress record."""
