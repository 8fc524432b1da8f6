"""Whole pipelines drawn from the grammar, on records drawn for them, computed in several ways.

`make test` takes a few seeds, `make fuzz` as many as fit into an hour. A new option of the grammar takes part
by itself: what is drawn follows the JSON schema that editors get. Where the naive model covers a pipeline,
its result has to be the same. Decoders and writers are tried alone and in blocks.
"""
