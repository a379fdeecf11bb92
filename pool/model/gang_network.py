"""Addresses in a network that one gang has to itself."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

_NETWORK = IPv4Network("10.86.0.0/24")
"""Every such gang's: none of them can see another, nor anything else that may use these addresses."""


@dataclass(frozen=True)
class GangSeat:
    """A member's place in its gang's network."""

    gang: str
    address: str
    prefix: int = _NETWORK.prefixlen


def seat_of(gang: str, rank: int) -> GangSeat:
    """The place of a rank; rank 0 has the first address."""
    address: IPv4Address = _NETWORK[rank + 1]
    return GangSeat(gang, str(address))
