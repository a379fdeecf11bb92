"""The Redis index: one Lua script per transition, one class that calls them, and the same in plain Python."""
