"""`HostEnv`: the host's clock and names, injected once, so that a test or a simulation owns both."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import attrs

from a3s_actors.memory._checks import check_text
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.timestamps import Timestamp

__all__ = ["HostEnv", "random_id"]


def random_id(kind: str) -> str:
    """Return a name that nobody else draws: the kind and 64 random bits in hex."""
    return f"{kind}-{secrets.token_hex(8)}"


def _callable(_instance: object, attribute: Any, value: object) -> None:
    if not callable(value):
        raise InvalidInput(f"host.{attribute.name}", f"must be callable, not {type(value).__name__}")


@attrs.frozen(kw_only=True)
class HostEnv:
    """The host's clock and id generator.

    Args:
        now: the host's time; None when it has none, and then no memory enters a context.
        new_id: makes a name for a "session" or a "run". It needs to be unique in this process only: an id that
            comes again is refused while its run is retained, and told apart afterwards.
    """

    now: Callable[[], Timestamp | None] = attrs.field(default=Timestamp.now, validator=_callable)
    new_id: Callable[[str], str] = attrs.field(default=random_id, validator=_callable)

    def name(self, kind: str) -> str:
        """Return a new name of a kind.

        Raises:
            InvalidInput, LimitExceeded: the generator gave no usable text.
        """
        made = self.new_id(kind)
        check_text(f"host.newId({kind})", made, 256)
        return made
