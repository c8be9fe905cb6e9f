"""Is a server on this machine? Such a one is never reached through a proxy, and may think for long."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(base_url: str) -> bool:
    """Say whether a URL names this machine: `localhost`, a name below it, or a loopback address."""
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
