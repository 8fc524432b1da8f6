"""The pipeline as frozen classes: what a pipeline file says, and what plans store of it."""
