"""The `http` sink: sends emissions to an endpoint, several in a request with an idempotency key."""
