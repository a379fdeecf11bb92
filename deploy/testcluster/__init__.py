"""A real Kubernetes cluster on one Linux machine, for tests: built from pinned sources, started and ended by pid."""
