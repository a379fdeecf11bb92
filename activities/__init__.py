"""What workflows call: one pydantic model in and one out, dispatched by name."""
