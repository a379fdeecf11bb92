"""The embedded stack: Temporal, Redis, local pods and workers as child processes of one command on one machine."""
