"""What a caller asks of the pool, and the words that the index answers with."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.recycle import Attestation


class Source(StrEnum):
    """Where a claim's pod came from: the serve share in every table and metric."""

    REUSE = "reuse"
    """Idle or just recycled, last used by the same tag."""
    FRESH = "fresh"
    """Warm and never used."""
    STANDBY = "standby"
    """Promoted from standby."""
    SWAP = "swap"
    """Of the same tag, its image swapped in place."""
    COLD = "cold"
    """Created, or still starting, when the claim came."""


class Holder(Frozen):
    """Who holds a lease, as Temporal knows it: the sweep asks about it, and takes back what a closed holder left."""

    namespace: str
    workflow_id: str | None = None
    run_id: str
    """First execution run id of the workflow, or the run id of a standalone activity."""
    activity_id: str | None = None
    """Set for a standalone activity, which has no workflow id."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.workflow_id is None) == (self.activity_id is None):
            raise ValueError("holder: give workflow_id or activity_id, not both and not none")
        return self


class ClaimSpec(Frozen):
    """What a sandbox is opened with. The same in every call of one sandbox."""

    profile: str
    caller: str
    """Required: a default would either never reuse or mix end users."""
    reuse_key: str = ""
    """Splits one caller's pods further; a new key each time means a fresh pod each time."""
    image: str = ""
    """Empty means the profile's base image."""
    fingerprint: str = ""
    """Hash of what survives a recycle (dependency layer, code bundle); preferred when it matches."""
    hold_s: float = 900.0
    """Seconds that the lease outlives the end of each call."""
    wait_timeout_s: float = 300.0
    """Seconds to wait in line before NoCapacity."""
    priority: int = 0
    """Higher goes first within one caller."""


MOST_MEMBERS = 32
"""Members of one gang: one script looks at all of them."""


class Gang(Frozen):
    """Requests that are served all at once or not at all."""

    id: str
    members: tuple[RequestId, ...] = Field(min_length=1, max_length=MOST_MEMBERS)
    """Request ids by rank."""
    peers: bool = False
    """Whether its pods must reach each other: refused where the profile's `gang_peers` does not promise it."""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if len(set(self.members)) != len(self.members):
            raise ValueError("members: every member needs a request id of its own")
        return self


class SandboxRef(Frozen):
    """Names a sandbox in every activity: no secret, no address, safe in history and in headers."""

    request_id: RequestId
    spec: ClaimSpec
    holder: Holder
    epoch: int | None = None
    """Known after the first answer. A ref with an epoch and no lease is SandboxLost, never a new pod."""
    first_scheduled: datetime | None = None
    """When the sandbox's first activity was scheduled: the start of TTFC."""
    gang: Gang | None = None
    """The gang that this sandbox is one of."""


class PodAddress(Frozen):
    """Where and who a pod is, at the moment of the claim."""

    name: PodName
    uid: PodUid
    boot_id: BootId
    endpoint: str
    """`unix:/path/to/socket`, `http://host:port` or `https://host:port`."""


class Claimed(Frozen):
    """The request holds this pod."""

    kind: Literal["claimed"] = "claimed"
    pod: PodAddress
    epoch: int
    tag: Tag
    source: Source
    new: bool
    """The first answer to a call (call_limit_s above 0); only then may a failed first contact move the request."""
    attestation: Attestation | None = None
    """The reset that this pod came from, if it was used before."""


class Promote(Frozen):
    """A standby pod is reserved for the request: promote it, then claim again."""

    kind: Literal["promote"] = "promote"
    pod: PodName


class Swap(Frozen):
    """A pod of the same tag is reserved for the request: swap its image, then claim again."""

    kind: Literal["swap"] = "swap"
    pod: PodName
    image: str


class Provision(Frozen):
    """A place under the ceiling is reserved for the request: create the pod, then claim again."""

    kind: Literal["provision"] = "provision"
    pod: PodName
    image: str


class Wait(Frozen):
    """The request stands in line (or its reserved pod is still starting or being reset): wait, then claim again."""

    kind: Literal["wait"] = "wait"
    left_s: float
    """Seconds until the claim's deadline."""
    drain: PodName | None = None
    """A pod that was set draining to make room; whoever waits may delete it at once."""


class Lost(Frozen):
    """The request held a pod and does not any more."""

    kind: Literal["lost"] = "lost"
    reason: str


class Closed(Frozen):
    """The request was released; nothing is left of it but a tombstone."""

    kind: Literal["closed"] = "closed"


class Expired(Frozen):
    """The claim's deadline passed in line; the request has left it."""

    kind: Literal["expired"] = "expired"
    reason: str = ""
    """Empty for the deadline; `gang_over_ceiling` if the pool is too small for the gang."""


class Mismatch(Frozen):
    """The request id is known with another tag."""

    kind: Literal["mismatch"] = "mismatch"


class Rebuilding(Frozen):
    """The index has no generation: it was lost, or never built. Rebuild, then ask again."""

    kind: Literal["rebuilding"] = "rebuilding"


Step = Annotated[Promote | Swap | Provision | Wait, Field(discriminator="kind")]
"""What a workflow must do before its claim can be answered."""

ClaimReply = Annotated[
    Claimed | Promote | Swap | Provision | Wait | Lost | Closed | Expired | Mismatch | Rebuilding,
    Field(discriminator="kind"),
]
