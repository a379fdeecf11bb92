"""An HTTP request to a server that runs in a sandbox."""

from pydantic import Field

from emberpool.pool.model.frozen import Bytes, Frozen, Strict


class PortRequest(Strict):
    """Goes to the pod's loopback, and nowhere else: redirections are answers, never followed."""

    port: int = Field(ge=1, le=65535)
    method: str = Field(default="GET", pattern=r"^[A-Z]{1,20}$")
    path: str = Field(default="/", pattern=r"^/[!-~]*$")
    """With the query, percent-encoded."""
    headers: tuple[tuple[str, str], ...] = ()
    body: Bytes = Field(default=b"", max_length=1024 * 1024)
    time_limit_s: float = Field(default=30.0, gt=0, le=300)
    limit: int = Field(default=1024 * 1024, ge=1, le=1024 * 1024)
    """Most bytes of the answer's body."""


class PortAnswer(Frozen):
    """What the server said."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""
    body: Bytes = b""
    truncated: bool = False
    """Whether the body was longer than the request's limit."""

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 become replacement characters."""
        return self.body.decode("utf-8", "replace")
