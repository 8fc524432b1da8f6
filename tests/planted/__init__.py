"""Bugs planted in the product's code, each of which the tests that it names must catch."""
