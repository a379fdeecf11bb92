"""Real servers for every test: each fixture module starts one kind."""

pytest_plugins = ["fixtures.redis", "fixtures.temporal", "fixtures.emberd", "fixtures.local", "fixtures.stack"]
