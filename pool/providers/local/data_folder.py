"""Where the supervisor keeps what belongs to pods."""

import os
from pathlib import Path

from emberpool.pool.providers.local.pod_spec import PodFolders
from emberpool.pool.providers.local.remove_folder import remove_folder


class DataFolder:
    """The supervisor's folders: `pods/NAME`, `pods-log/NAME.log`, `pods-etc` and `pods-emberd` in the data folder, and
    `pods/UID` with the sockets in the folder of the supervisor's own socket, whose path is short.
    """

    def __init__(self, root: Path, run: Path) -> None:
        self.root, self.run = root, run / "pods"
        self.pods, self.logs = root / "pods", root / "pods-log"
        self.etc, self.emberd = root / "pods-etc", root / "pods-emberd"

    def prepare(self) -> None:
        """Make it, and delete what an earlier supervisor left.

        Raises:
            OSError: it cannot be written.
        """
        for folder in (self.pods, self.run):
            remove_folder(folder)
            folder.mkdir()
            # A plain pod under a uid of its own walks through, and lists nothing.
            folder.chmod(0o711)
        self.logs.mkdir(mode=0o700, exist_ok=True)

    def of(self, name: str, uid: str) -> PodFolders:
        """Where a pod's folders lie."""
        return PodFolders(home=self.pods / name, run=self.run / uid)


def make_folders(folders: PodFolders, host_uid: int) -> None:
    """All of a pod's, its user's own; -1: ours. Raises OSError."""
    for folder in folders.all():
        make_folder(folder, host_uid)


def make_folder(folder: Path, host_uid: int) -> None:
    """One of them. Raises OSError."""
    folder.mkdir(mode=0o700)
    if host_uid >= 0:
        os.chown(folder, host_uid, host_uid)
