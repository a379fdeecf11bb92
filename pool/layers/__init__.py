"""Layers on the worker: fetched or built once, kept on its disk within a bound, sent to pods that lack them."""
