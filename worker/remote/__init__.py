"""For programs outside Temporal that hold a Temporal client: one-shot tool calls, and sandboxes that feel local."""
