"""Names of hosts."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether a host name denotes this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
