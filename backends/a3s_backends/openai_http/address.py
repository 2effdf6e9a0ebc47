"""Where a model's server is: a base URL, checked before anything is sent to it."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

import attrs

from a3s_actors.memory.errors import InvalidInput

__all__ = ["Address"]

_FIELD: Final = "baseUrl"


@attrs.frozen
class Address:
    """A server's address. `Address.parse` makes it.

    Attributes:
        url: where chat completions are, without credentials.
        host: the host, for a repr; a path may be a secret of the host's.
        encrypted: whether it is https.
        local: whether it is this machine, by name or number.
    """

    url: str = attrs.field(repr=False)
    host: str
    encrypted: bool
    local: bool

    @classmethod
    def parse(cls, base_url: str) -> Address:
        """Return the address of a base URL such as `https://api.openai.com/v1`.

        Raises:
            InvalidInput: it is no http or https URL, or holds credentials, a query or a fragment. The URL is not in the
                message: it may hold a secret.
        """
        if not isinstance(base_url, str):
            raise InvalidInput(_FIELD, "must be text")
        # What two parsers could read differently, so that a key goes where nobody meant, does not pass here.
        if not base_url.isascii() or not base_url.isprintable() or set(base_url) & set(' \\"<>^`{|}'):
            raise InvalidInput(_FIELD, "must be a URL in ASCII; write other letters of a host as xn--")
        host, port = None, None
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not host or port == 0:
            raise InvalidInput(_FIELD, "must be an http or https URL with a host, such as https://api.openai.com/v1")
        if "@" in parts.netloc:
            raise InvalidInput(_FIELD, "holds credentials; give them as api_key")
        if "?" in base_url or "#" in base_url:
            raise InvalidInput(_FIELD, "must have no query and no fragment")
        url = f"{base_url.rstrip('/')}/chat/completions"
        return cls(url, host, parts.scheme == "https", _is_local(host))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
