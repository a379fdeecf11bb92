"""Workflows that the tests start, as a user would write them."""
