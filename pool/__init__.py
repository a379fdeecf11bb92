"""The pool itself: model, index, policy, providers, emberd and its client. Imports nothing of Temporal."""
