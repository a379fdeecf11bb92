"""Pure functions over the state of a pool: no clock, no I/O; state in, plan out."""
