"""The key of a server: held so that no repr, error, log or pickle can show it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final, NoReturn

from a3s_actors.memory.errors import InvalidInput

__all__ = ["ApiKey", "api_key_from_environment"]

_FIELD: Final = "apiKey"
_VISIBLE: Final = re.compile(r"[!-~]{1,8192}")


def api_key_from_environment(name: str = "OPENAI_API_KEY") -> Callable[[], str]:
    """Return an `api_key` that is read from an environment variable whenever a request is sent.

    The returned function raises InvalidInput while the variable is not set, or empty.
    """

    def read() -> str:
        value = os.environ.get(name, "").strip()
        if not value:
            raise InvalidInput(_FIELD, f"the environment variable {name} is not set, or empty")
        return value

    return read


class ApiKey:
    """A key, or who gives it.

    Args:
        given: the key, or a function that is called for each attempt, so that a key may change; it must not block.

    Raises:
        InvalidInput: the key is nothing that fits into a header; it is not in the message.
    """

    __slots__ = ("_give",)

    def __init__(self, given: str | Callable[[], str]) -> None:
        if isinstance(given, str):
            _checked(given)
            self._give: Callable[[], str] = lambda: given
        elif callable(given):
            self._give = given
        else:
            raise InvalidInput(_FIELD, "must be text or a function that returns text")

    def __repr__(self) -> str:
        return "<ApiKey>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled or copied")

    def authorization(self) -> str:
        """Return the value of the header. Raises InvalidInput, and whatever the host's function raises."""
        return f"Bearer {_checked(self._give())}"


def _checked(key: object) -> str:
    if not isinstance(key, str) or not _VISIBLE.fullmatch(key):
        del key  # no local of a frame that an error report shows
        raise InvalidInput(_FIELD, "must be 1 to 8192 visible ASCII characters, without spaces or line ends")
    return key
