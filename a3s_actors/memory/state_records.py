"""A whole repository as a sequence of small records: what `ReferenceState.dump` yields and `load` takes.

For storage that has to write its state anew, as a journal does after a purge. The order is: the header, then for
each namespace its records (heads before their revisions, revisions oldest first, change sets in the order they were
applied), then the access events in the order of their arrival.
"""

from __future__ import annotations

import attrs

from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.purge import PurgeReceipt
from a3s_actors.memory.reads import AccessRecord
from a3s_actors.memory.values import MemoryNamespace, NodeHead, NodeRevision

__all__ = [
    "StateApplied",
    "StateErased",
    "StateEvent",
    "StateHead",
    "StateHeader",
    "StateNamespace",
    "StatePurge",
    "StateRecord",
    "StateRevision",
]


@attrs.frozen(kw_only=True)
class StateHeader:
    """The secret under which purges keep digests, and the place of the next access event."""

    key: bytes = attrs.field(repr=False)
    next_place: int


@attrs.frozen(kw_only=True)
class StateNamespace:
    """A namespace and its change token's sequence; the records after it belong to it."""

    namespace: MemoryNamespace
    sequence: int


@attrs.frozen
class StateHead:
    """A node's current state."""

    head: NodeHead


@attrs.frozen
class StateRevision:
    """An earlier revision of the head before it."""

    revision: NodeRevision


@attrs.frozen
class StateApplied:
    """A change set, and which revisions it made."""

    change_set: MemoryChangeSet
    changed: tuple[tuple[str, int], ...]


@attrs.frozen
class StateErased:
    """The key of an erased change set, and its keyed digest."""

    key: str
    digest: str


@attrs.frozen(kw_only=True)
class StatePurge:
    """A purge that was done: the keyed digest of what was asked, and its receipt."""

    digest: bytes
    receipt: PurgeReceipt


@attrs.frozen
class StateEvent:
    """An access event with its place."""

    record: AccessRecord


StateRecord = (
    StateHeader | StateNamespace | StateHead | StateRevision | StateApplied | StateErased | StatePurge | StateEvent
)
