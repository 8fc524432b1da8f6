"""Pages of a pipeline, one in each file with its route."""
