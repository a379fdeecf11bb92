"""Writes the reference pages and the picture of a pod's states, from the code: `make reference`."""
