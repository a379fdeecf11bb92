"""A saved state of a sandbox's files."""

from pydantic import Field

from emberpool.pool.model.frozen import Frozen


class Checkpoint(Frozen):
    """Names what a sandbox had changed. Holds no secret and is small: it may go into histories, inputs and results.

    Whoever has it can restore it, in any pool whose workers share the blob store.
    """

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the archive's bytes; it lies under this name in the blob store, and whatever else lies there is refused."""
    image: str
    """Name of the image that the changes belong to."""
    bytes: int = Field(default=0, ge=0)
    """Size of the archive."""
    entries: int = 0
    """Files, folders, links and deletions."""
    skipped: int = 0
    """FIFOs, sockets and devices, which are left out."""

    @property
    def blob(self) -> str:
        """Its name below the blob store's URL."""
        return f"checkpoints/{self.sha256}.tar"
