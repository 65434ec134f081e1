"""Requests that are answered to callers on this machine only."""

from ipaddress import ip_address
from typing import Any

from litestar import Request

from app.domain.report_errors import LoopbackOnly


def require_loopback(request: Request[Any, Any, Any]) -> None:
    """Let nobody else by.

    Raises:
        LoopbackOnly: the caller is elsewhere.
    """
    client = request.client
    if client is None or not is_loopback(client.host):
        raise LoopbackOnly


def is_loopback(host: str) -> bool:
    """Whether this address is this machine's own, however it is written."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
