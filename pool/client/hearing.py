"""Whether a pod's emberd answers a question, told apart from trouble of our own, which says nothing of the pod."""

import errno
from enum import StrEnum

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.trust import lacks_trust
from emberpool.pool.model.errors import EmberpoolError, PodRefused
from emberpool.pool.model.ids import PodName

OUR_OWN = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
"""What this process or machine has too few of to ask anybody: files, ports, memory."""


class Heard(StrEnum):
    """What came of one question."""

    ANSWER = "answer"
    SILENCE = "silence"
    """No answer in time, a connection refused or cut, or an answer that the pod's key does not vouch for."""
    UNKNOWN = "unknown"
    """It could not be asked, for trust or means that this worker lacks."""


async def hear(client: EmberdClient, name: PodName, endpoint: str, limit_s: float) -> tuple[Heard, str]:
    """Ask it how it is, and tell what came of that, with the trouble's text. `limit_s` is for the connection, and for
    the answer anew."""
    try:
        await client.state(name, endpoint, limit_s)
    except PodRefused as error:
        return Heard.ANSWER, str(error)
    except EmberpoolError as error:
        return (Heard.UNKNOWN if lacks_trust(error) or is_our_own(error) else Heard.SILENCE), str(error)
    return Heard.ANSWER, ""


def is_our_own(error: BaseException) -> bool:
    """Whether a call failed for what this worker has too few of."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in OUR_OWN:
            return True
        cause = cause.__cause__
    return False
