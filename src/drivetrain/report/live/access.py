"""Who may read: on this host whoever asks for it by a local name, from elsewhere whoever has the token."""

import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Access", "is_loopback", "new_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules of one server; without a token it answers only requests to a local name."""

    token: str | None
    cookie: str

    def knows_host(self, hosts: list[str]) -> bool:
        """Whether the Host headers of a request are as they should be.

        A page of the web can let its own name lead to 127.0.0.1 (DNS rebinding); its requests carry the name.
        """
        if len(hosts) != 1:
            return False
        return self.token is not None or is_loopback(_host_name(hosts[0]))

    def has_token(self, cookies: str) -> bool:
        """Whether the cookies of a request hold the token; always if none is needed."""
        if self.token is None:
            return True
        pairs = [pair.strip().partition("=") for pair in cookies.split(";")]
        return any(name == self.cookie and self.is_token(value) for name, _, value in pairs)

    def is_token(self, value: str) -> bool:
        """Whether this is the token, compared in a time that tells nothing about it."""
        if self.token is None:
            return False
        return hmac.compare_digest(value.encode(errors="surrogateescape"), self.token.encode())

    def new_cookie(self) -> str:
        """The header that lets a browser keep the token."""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Whether only programs of this host can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """The name in a Host header, without the port, which a tunnel may change."""
    try:
        parts = urlsplit(f"//{host}")
        has_more = bool(parts.path or parts.query or parts.fragment or parts.username)
        # Asking for the port checks that it is one.
        return "" if has_more or parts.port == 0 else parts.hostname or ""
    except ValueError:
        return ""
