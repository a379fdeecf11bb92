"""Real servers for every test: each fixture module starts one kind; and the seed of the run."""

import signal

pytest_plugins = [
    "fixtures.seeds",
    "fixtures.redis",
    "fixtures.temporal",
    "fixtures.emberd",
    "fixtures.local",
    "fixtures.stack",
    "fixtures.cluster",
    "fixtures.simulated_kubernetes",
]


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C is tested on children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
