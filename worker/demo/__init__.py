"""The demo on real input: every HumanEval problem, several rollouts each, on this machine."""
