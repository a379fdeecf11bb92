"""Which Python a job has: asked in the sandbox, so that it is the one of its image, and told to uv in uv's words."""

from pydantic import ValidationError

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.frozen import Frozen

PROBE = (
    "import json,os,platform,sys;"
    "print(json.dumps({'version':'%d.%d.%d'%sys.version_info[:3],'machine':platform.machine(),"
    "'libc':'.'.join(platform.libc_ver()[1].split('.')[:2]) if platform.libc_ver()[0]=='glibc' else '',"
    "'path':os.environ.get('PATH','')}))"
)
"""What `python3 -I -c` of the sandbox is asked; any Python from 3.8 on answers."""
_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_GLIBC = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
"""Minor versions of glibc 2 that uv has platforms for."""


class JobPython(Frozen):
    """The `python3` of a sandbox."""

    version: str
    machine: str
    libc: str = ""
    """Version of glibc; empty for another C library."""
    path: str = ""
    """The PATH of its jobs."""

    @property
    def platform(self) -> str:
        """In uv's words.

        Raises:
            InvalidInput: there are no wheels for such a machine.
        """
        machine = _MACHINES.get(self.machine)
        if machine is None:
            raise InvalidInput("requirements", f"there are no wheels for the image's machine {self.machine!r}")
        if not self.libc:
            return f"{machine}-unknown-linux-musl"
        have = int(self.libc.split(".")[1])
        return f"{machine}-manylinux_2_{max((minor for minor in _GLIBC if minor <= have), default=17)}"


def read_probe(answer: bytes) -> JobPython:
    """What the probe printed.

    Raises:
        InvalidInput: the image has no `python3` that answers.
    """
    try:
        return JobPython.model_validate_json(answer)
    except ValidationError:
        raise InvalidInput("requirements", "the sandbox's image has no working python3 from 3.8 on") from None
