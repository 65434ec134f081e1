"""Which addresses the parent may send to, when somebody else named them.

A URL that a user gives is a request that the server makes from inside its own network. So only
public addresses are taken, unless the settings name a network; an IPv4 address that is wrapped in
an IPv6 one is judged by what is inside.
"""

from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

NAMED: Final = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}
"""Networks with a name. Link-local ones have none: cloud hosts answer there with their keys."""

_NAT64: Final = IPv6Network("64:ff9b::/96")


def networks(names: Iterable[str]) -> tuple[Network, ...]:
    """The networks that these names or CIDR blocks stand for.

    Raises:
        ValueError: one is neither.
    """
    blocks = [block for name in names for block in NAMED.get(name, (name,))]
    return tuple(ip_network(block) for block in blocks)


def refusal(text: str, allowed: Sequence[Network]) -> str | None:
    """Why nothing is sent to this address; None when it may be."""
    address = _inner(ip_address(text.partition("%")[0]))
    if any(address in network for network in allowed):
        return None
    for kind in ("loopback", "link_local", "multicast", "unspecified", "private", "reserved"):
        if getattr(address, f"is_{kind}"):
            return f"{address} is a {kind.replace('_', '-')} address"
    return None if address.is_global else f"{address} is not a public address"


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return (
        address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1] or address
    )
