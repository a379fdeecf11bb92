"""The command line, `emberpool`."""
