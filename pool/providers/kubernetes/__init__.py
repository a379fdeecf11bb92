"""Pods in a Kubernetes namespace: bare pods, one shared watch, and no call of the API for a warm claim."""
