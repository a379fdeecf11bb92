"""The pool's index in plain Python: what scripts/*.lua do, for the simulator and for judging the scripts.

Written from the contract, not from the scripts; a test drives both and holds replies and records equal after each
step.
"""
