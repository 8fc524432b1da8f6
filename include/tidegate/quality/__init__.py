"""Run Great Expectations on a batch. Importing `gate`, and what it imports, takes seconds."""
