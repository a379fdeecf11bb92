"""Deterministic Temporal code: the sandbox handle, tool calls, rollouts, batches, the pool manager."""
