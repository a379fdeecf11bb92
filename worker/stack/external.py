"""Servers of the user's own, named by the environment, that a stack uses instead of starting some."""

import os

from temporalio.envconfig import ClientConfig

from emberpool.pool.index.connection import connect
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.temporal_server import temporal_answers


async def external_temporal() -> tuple[str, str] | None:
    """Address and namespace of the server that TEMPORAL_ADDRESS names, once it answered; None if it is not set.

    Raises:
        StackError: it does not answer, or does not have the namespace.
    """
    if not os.environ.get("TEMPORAL_ADDRESS"):
        return None
    config = ClientConfig.load_client_connect_config()
    address, namespace = config.get("target_host", ""), config.get("namespace", "default")
    problem = await temporal_answers(config)
    if problem is not None:
        cause = f"{address} (TEMPORAL_ADDRESS), namespace {namespace}: {problem}"
        raise StackError("Temporal", cause, "correct TEMPORAL_ADDRESS, or unset it to have a server started")
    return address, namespace


async def external_redis() -> str | None:
    """The URL in EMBERPOOL_REDIS_URL, once a server answered there; None if it is not set.

    Raises:
        StackError: it does not answer, or may evict what the index holds.
    """
    url = os.environ.get("EMBERPOOL_REDIS_URL")
    if not url:
        return None
    remedy = "correct EMBERPOOL_REDIS_URL, or unset it to have a server started"
    try:
        redis = await connect(url)
    except PoolUnavailable as error:
        # The URL may hold a password: it is not repeated.
        cause = f"the server that EMBERPOOL_REDIS_URL names does not answer: {Exception.__str__(error)}"
        raise StackError("Redis", cause, remedy) from error
    except InvalidInput as error:
        raise StackError("Redis", f"EMBERPOOL_REDIS_URL: {error.problem}", remedy) from error
    await redis.aclose()
    return url
