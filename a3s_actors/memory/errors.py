"""Every way the memory kernel says no: one tree, each error with its fields.

`MemoryRepositoryError` is the base. `family` tells a caller what it can do about an error without a table
of classes: correct the input, look again at the state, try again later, reopen, restore a backup.
Messages name the field, the limit and the cure, never memory content or evidence text.
"""

from __future__ import annotations

import enum
from typing import ClassVar

import attrs

__all__ = [
    "AdmissionNotAllowed",
    "ChangeSetPurged",
    "Corruption",
    "ErrorFamily",
    "EvidenceRequired",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidTransition",
    "InvariantViolation",
    "LimitExceeded",
    "MemoryRepositoryError",
    "NamespaceMismatch",
    "NodeAlreadyExists",
    "NodeNotFound",
    "NodeRevisionNotFound",
    "Persistence",
    "RelationTargetNotFound",
    "RepositoryClosed",
    "RepositoryLocked",
    "RevisionConflict",
]


class ErrorFamily(enum.Enum):
    """What a caller can do about an error."""

    INVALID = "invalid"  # the input can never be accepted: correct it
    REFUSED = "refused"  # the input is well formed, the state forbids it
    CONFLICT = "conflict"  # somebody else was first: read again, decide again
    CLOSED = "closed"  # the repository is not open any more: open it again
    UNAVAILABLE = "unavailable"  # storage did not answer: the same call may work later
    CORRUPT = "corrupt"  # stored bytes are not what was written: restore


class MemoryRepositoryError(Exception):
    """Base of all errors of a memory repository."""

    family: ClassVar[ErrorFamily] = ErrorFamily.INVALID

    def fields(self) -> dict[str, object]:
        """Return the error's fields by name, JSON ready, for logs and machine output."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


# attrs' auto_exc gives pickling and `args`; `str=False`-like behaviour is wanted for the text only,
# so every class states its own message in __str__.
_error = attrs.define(eq=False, slots=False)


@_error
class InvalidInput(MemoryRepositoryError):
    """A value is malformed. `field` names it as the JSON does, `message` says what is wanted."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@_error
class LimitExceeded(MemoryRepositoryError):
    """A value or a result is larger than allowed. `actual` is what was found, or a lower bound of it."""

    resource: str
    limit: int
    actual: int

    def __str__(self) -> str:
        return f"{self.resource}: {self.actual} exceeds the limit of {self.limit}"


@_error
class NamespaceMismatch(MemoryRepositoryError):
    """A draft names another namespace than the change set that creates it."""

    node_id: str

    def __str__(self) -> str:
        return f"node {self.node_id!r}: its namespace differs from the change set's; use one change set a namespace"


@_error
class NodeNotFound(MemoryRepositoryError):
    """The namespace has no node of that id."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    node_id: str

    def __str__(self) -> str:
        return f"node {self.node_id!r} does not exist in this namespace"


@_error
class NodeRevisionNotFound(MemoryRepositoryError):
    """The node exists, but not that revision of it."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    node_id: str
    revision: int

    def __str__(self) -> str:
        return f"node {self.node_id!r} has no revision {self.revision}"


@_error
class NodeAlreadyExists(MemoryRepositoryError):
    """A create names an id that is taken."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    node_id: str

    def __str__(self) -> str:
        return f"node {self.node_id!r} already exists in this namespace; revise it or choose another id"


@_error
class RevisionConflict(MemoryRepositoryError):
    """The node moved on since the caller read it."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    node_id: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"node {self.node_id!r} is at revision {self.actual}, not {self.expected}; read it again and decide anew"


@_error
class InvalidTransition(MemoryRepositoryError):
    """A status change that the life cycle does not have. `from_status` is None for a create."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    node_id: str
    from_status: str | None
    to_status: str

    def __str__(self) -> str:
        start = "nothing" if self.from_status is None else self.from_status
        return f"node {self.node_id!r}: {start} -> {self.to_status} is no transition of the life cycle"


@_error
class EvidenceRequired(MemoryRepositoryError):
    """The operation needs evidence that it does not bring."""

    family: ClassVar[ErrorFamily] = ErrorFamily.INVALID
    node_id: str
    message: str

    def __str__(self) -> str:
        return f"node {self.node_id!r}: {self.message}"


@_error
class RelationTargetNotFound(MemoryRepositoryError):
    """A relation points at a node that the namespace does not have."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    node_id: str
    target_id: str

    def __str__(self) -> str:
        return f"node {self.node_id!r}: the relation target {self.target_id!r} does not exist in this namespace"


@_error
class InvariantViolation(MemoryRepositoryError):
    """The change set would leave a node or the graph in a state that must not exist."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    node_id: str
    message: str

    def __str__(self) -> str:
        return f"node {self.node_id!r}: {self.message}"


@_error
class IdempotencyConflict(MemoryRepositoryError):
    """The key (of a change set or an access event) was used before, with different values."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    key: str

    def __str__(self) -> str:
        return f"idempotency key {self.key!r} was used before with different values; use a new key"


@_error
class ChangeSetPurged(MemoryRepositoryError):
    """The change set of that key was erased; a replay must not bring its content back."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    key: str
    digest: str

    def __str__(self) -> str:
        return f"the change set of key {self.key!r} was purged; it cannot be applied again"


@_error
class AdmissionNotAllowed(MemoryRepositoryError):
    """Only the current revision of an active node can enter a context."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    node_id: str
    revision: int
    current_revision: int
    current_status: str

    def __str__(self) -> str:
        return (
            f"node {self.node_id!r}: revision {self.revision} cannot be admitted; "
            f"it is {self.current_status} at revision {self.current_revision}"
        )


@_error
class Persistence(MemoryRepositoryError):
    """Storage failed. Nothing of the operation is known to be stored; the same key may be tried again."""

    family: ClassVar[ErrorFamily] = ErrorFamily.UNAVAILABLE
    operation: str
    message: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.message}"


@_error
class RepositoryLocked(Persistence):
    """Somebody else owns the storage."""

    def __str__(self) -> str:
        return f"{self.operation}: {self.message}"


@_error
class RepositoryClosed(MemoryRepositoryError):
    """The repository was closed, or its writer ended, before the call was answered."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CLOSED
    reason: str

    def __str__(self) -> str:
        return f"the repository is closed ({self.reason}); open it again"


@_error
class Corruption(MemoryRepositoryError):
    """Stored bytes are not what was written. `where` names the place, `message` what is wrong with it."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CORRUPT
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}; the file is left as it is, restore a backup"
