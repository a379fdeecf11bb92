"""The composition root: plugin, settings, command line, the embedded stack, the demo."""
