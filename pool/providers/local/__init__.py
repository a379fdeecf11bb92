"""Pods on this machine: a supervisor process that owns them, through bubblewrap."""
