"""A workflow whose module imports such a library as if it were workflow code."""

from temporalio import workflow

from scenarios.tricks import TEXT


@workflow.defn
class Refused:
    """Never runs."""

    @workflow.run
    async def run(self) -> int:
        return len(TEXT)
