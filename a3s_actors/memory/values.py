"""The kernel's values: what a memory is, where it belongs and what supports it.

All are immutable and checked when made. Text fields that may hold memory content stay out of every repr.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Final

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory._checks import as_tuple, check_text, instance_of, text, unit_interval, whole
from a3s_actors.memory.errors import InvalidInput, LimitExceeded, NodeRevisionNotFound
from a3s_actors.memory.timestamps import Timestamp, to_timestamp

__all__ = [
    "AccessEvent",
    "AccessKind",
    "EvidenceKind",
    "EvidenceRef",
    "Labels",
    "MemoryKind",
    "MemoryNamespace",
    "MemoryNode",
    "MemoryNodeDraft",
    "MemoryRelation",
    "MemoryStatus",
    "NodeHead",
    "NodeRevision",
    "RelationKind",
    "RevisionKind",
    "UsageSummary",
]


class EvidenceKind(enum.Enum):
    """What sort of source supports a memory. The order of the members is the stored sort order."""

    USER_STATEMENT = "user_statement"
    TOOL_RESULT = "tool_result"
    ARTIFACT = "artifact"
    SESSION_TURN = "session_turn"
    VERIFICATION = "verification"
    MANUAL = "manual"


class MemoryKind(enum.Enum):
    """The durable kinds. Working memory is never durable."""

    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"


class MemoryStatus(enum.Enum):
    """Where a memory stands. Only an active one is ever served."""

    CANDIDATE = "candidate"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    CONFLICTED = "conflicted"
    TOMBSTONED = "tombstoned"


class RelationKind(enum.Enum):
    """How one memory points at another. Every relation has its inverse on the target."""

    SUPERSEDES = "supersedes"
    SUPERSEDED_BY = "superseded_by"
    CONFLICTS_WITH = "conflicts_with"
    RELATED_TO = "related_to"

    @property
    def inverse(self) -> RelationKind:
        """The kind that the target carries back."""
        return _INVERSE[self]


_INVERSE = {
    RelationKind.SUPERSEDES: RelationKind.SUPERSEDED_BY,
    RelationKind.SUPERSEDED_BY: RelationKind.SUPERSEDES,
    RelationKind.CONFLICTS_WITH: RelationKind.CONFLICTS_WITH,
    RelationKind.RELATED_TO: RelationKind.RELATED_TO,
}


class RevisionKind(enum.Enum):
    """Why a revision was made."""

    CREATED = "created"
    ACTIVATED = "activated"
    CORROBORATED = "corroborated"
    REFINED = "refined"
    CORRECTED = "corrected"
    RELATION_CHANGED = "relation_changed"
    STATUS_CHANGED = "status_changed"


class AccessKind(enum.Enum):
    """The two sorts of access events: entered a model's input, or was really used."""

    ADMISSION = "admission"
    USE = "use"


PURGED_PREFIX: Final = "a3s-purged-"
"""How the ids of purge marks begin; no node can have such an id, and no change set can relate to one."""

EVIDENCE_ORDER = {kind: place for place, kind in enumerate(EvidenceKind)}
RELATION_ORDER = {kind: place for place, kind in enumerate(RelationKind)}


@attrs.frozen(order=True)
class MemoryNamespace:
    """The exact owner of memories. Its parts are opaque: compared byte for byte, never trimmed or folded.

    Args:
        tenant_id, principal_id, scope_id: text of 1 to 256 UTF-8 bytes, not blank.

    Raises:
        InvalidInput: a part is empty, blank or not Unicode text.
        LimitExceeded: a part is longer than 256 bytes.
    """

    tenant_id: str = attrs.field(validator=text("namespace.tenantId", limits.MAX_IDENTIFIER_BYTES))
    principal_id: str = attrs.field(validator=text("namespace.principalId", limits.MAX_IDENTIFIER_BYTES))
    scope_id: str = attrs.field(validator=text("namespace.scopeId", limits.MAX_IDENTIFIER_BYTES))


@attrs.frozen(kw_only=True)
class EvidenceRef:
    """A reference to what supports a memory; the source itself stays with the host.

    Args:
        uri: 1 to 2048 bytes; unique within a node.
        digest: 1 to 256 bytes, by custom "sha256:…" of the source.
        kind: what sort of source.
        occurred_at: when the source came to be; Timestamp, aware datetime or RFC 3339.

    Raises:
        InvalidInput: a field is blank or of the wrong type.
        LimitExceeded: a text is too long.
    """

    uri: str = attrs.field(validator=text("evidence.uri", limits.MAX_EVIDENCE_URI_BYTES))
    digest: str = attrs.field(validator=text("evidence.digest", limits.MAX_EVIDENCE_DIGEST_BYTES))
    kind: EvidenceKind = attrs.field(validator=instance_of("evidence.kind", EvidenceKind))
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)

    def sort_key(self) -> tuple[bytes, bytes, int, int]:
        """The stored order of merged evidence: uri, digest, kind, time."""
        return self.uri.encode(), self.digest.encode(), EVIDENCE_ORDER[self.kind], self.occurred_at.order_key


@attrs.frozen
class MemoryRelation:
    """A directed link to another node of the same namespace.

    Args:
        kind: how the two relate.
        target_id: the other node, 1 to 256 bytes.
    """

    kind: RelationKind = attrs.field(validator=instance_of("relation.kind", RelationKind))
    target_id: str = attrs.field(validator=text("relation.targetId", limits.MAX_IDENTIFIER_BYTES))

    def sort_key(self) -> tuple[int, bytes]:
        """The stored order after a relation was added: kind, target."""
        return RELATION_ORDER[self.kind], self.target_id.encode()


class Labels(Mapping[str, str]):
    """An immutable text-to-text mapping, in the order of its keys' UTF-8 bytes.

    Args:
        items: at most 64 pairs; keys 1 to 128 bytes and not blank, values up to 1024 bytes and not blank
            unless empty.

    Raises:
        InvalidInput: no mapping, a key is blank, or key or value is no Unicode text.
        LimitExceeded: too many pairs, or one too long.
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, str] | None = None) -> None:
        if items is not None and not isinstance(items, Mapping):
            raise InvalidInput("node.labels", "must be a mapping from text to text")
        pairs = dict(items or {})
        for key, value in pairs.items():
            check_text("node.labels.key", key, limits.MAX_LABEL_KEY_BYTES)
            check_text("node.labels.value", value, limits.MAX_LABEL_VALUE_BYTES, empty_ok=True)
        if len(pairs) > limits.MAX_LABELS:
            raise LimitExceeded("node labels", limits.MAX_LABELS, len(pairs))
        self._items = {key: pairs[key] for key in sorted(pairs, key=str.encode)}
        self._hash: int | None = None

    @classmethod
    def of(cls, value: Mapping[str, str] | None) -> Labels:
        """Return `value` as Labels; None is empty."""
        return value if isinstance(value, Labels) else cls(value)

    def __getitem__(self, key: str) -> str:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels):
            return self._items == other._items
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Labels, (self._items,)

    def __repr__(self) -> str:
        return f"<Labels: {len(self._items)}>"


# The converters are named functions: type checkers then accept, say, a list where a tuple is kept.
_to_evidence = as_tuple("node.evidence", EvidenceRef)
_to_relations = as_tuple("node.relations", MemoryRelation)
_to_confidence = unit_interval("node.confidence")
_to_importance = unit_interval("node.importance")


def to_evidence(value: Iterable[EvidenceRef]) -> tuple[EvidenceRef, ...]:
    """Return evidence as a tuple. Raises InvalidInput for anything else."""
    return _to_evidence(value)


def to_relations(value: Iterable[MemoryRelation]) -> tuple[MemoryRelation, ...]:
    """Return relations as a tuple. Raises InvalidInput for anything else."""
    return _to_relations(value)


def to_confidence(value: float) -> float:
    """Return a confidence at float32 precision. Raises InvalidInput outside 0 to 1."""
    return _to_confidence(value)


def to_importance(value: float) -> float:
    """Return an importance at float32 precision. Raises InvalidInput outside 0 to 1."""
    return _to_importance(value)


def to_labels(value: Mapping[str, str] | None) -> Labels:
    """Return labels of a mapping; None is empty. Raises as `Labels`."""
    return Labels.of(value)


def _count(items: Sized) -> str:
    return f"<{len(items)}>"


_valid_id = text("node.id", limits.MAX_IDENTIFIER_BYTES)
_valid_content = text("node.content", limits.MAX_CONTENT_BYTES)
_valid_namespace = instance_of("node.namespace", MemoryNamespace)
_valid_kind = instance_of("node.kind", MemoryKind)
_valid_status = instance_of("node.status", MemoryStatus)
_valid_revision = whole("node.revision", 1)
_valid_revision_kind = instance_of("node.revisionKind", RevisionKind)


def _check_sizes(value: MemoryNodeDraft | NodeHead | NodeRevision) -> None:
    if len(value.evidence) > limits.MAX_EVIDENCE:
        raise LimitExceeded("node evidence", limits.MAX_EVIDENCE, len(value.evidence))
    if len(value.relations) > limits.MAX_RELATIONS:
        raise LimitExceeded("node relations", limits.MAX_RELATIONS, len(value.relations))


@attrs.frozen(kw_only=True)
class MemoryNodeDraft:
    """A memory as it is proposed, before it has a revision.

    Args:
        id: 1 to 256 bytes, unused in the namespace.
        namespace: the exact owner.
        kind: episodic, semantic or procedural.
        status: candidate (default) or active; an active draft needs evidence.
        content: the memory's text, 1 byte to 64 KiB, not blank; U+0000 is allowed.
        confidence, importance: finite, 0 to 1, kept at float32 precision; annotations that authorise nothing.
        evidence: at most 64, unique by uri; the order is kept.
        relations: at most 256; the order is kept.
        labels: at most 64.
        created_at: not later than the change set's time.

    Raises:
        InvalidInput: a field is malformed.
        LimitExceeded: a field is too large.
    """

    id: str = attrs.field(validator=_valid_id)
    namespace: MemoryNamespace = attrs.field(validator=_valid_namespace)
    kind: MemoryKind = attrs.field(validator=_valid_kind)
    status: MemoryStatus = attrs.field(default=MemoryStatus.CANDIDATE, validator=_valid_status)
    content: str = attrs.field(repr=False, validator=_valid_content)
    confidence: float = attrs.field(converter=to_confidence, default=0.5)
    importance: float = attrs.field(converter=to_importance, default=0.5)
    evidence: tuple[EvidenceRef, ...] = attrs.field(converter=to_evidence, factory=tuple, repr=_count)
    relations: tuple[MemoryRelation, ...] = attrs.field(converter=to_relations, factory=tuple)
    labels: Labels = attrs.field(converter=to_labels, factory=Labels)
    created_at: Timestamp = attrs.field(converter=to_timestamp)

    def __attrs_post_init__(self) -> None:
        _check_sizes(self)


@attrs.frozen(kw_only=True)
class NodeRevision:
    """An immutable earlier revision of a node: its fields without id, namespace and created_at."""

    revision: int = attrs.field(validator=_valid_revision)
    kind: MemoryKind = attrs.field(validator=_valid_kind)
    status: MemoryStatus = attrs.field(validator=_valid_status)
    content: str = attrs.field(repr=False, validator=_valid_content)
    confidence: float = attrs.field(converter=to_confidence, default=0.5)
    importance: float = attrs.field(converter=to_importance, default=0.5)
    evidence: tuple[EvidenceRef, ...] = attrs.field(converter=to_evidence, factory=tuple, repr=_count)
    relations: tuple[MemoryRelation, ...] = attrs.field(converter=to_relations, factory=tuple)
    labels: Labels = attrs.field(converter=to_labels, factory=Labels)
    updated_at: Timestamp = attrs.field(converter=to_timestamp)
    revision_kind: RevisionKind = attrs.field(validator=_valid_revision_kind)

    def __attrs_post_init__(self) -> None:
        _check_sizes(self)


@attrs.frozen(kw_only=True)
class NodeHead:
    """A node at one revision, without its history. What hits, pages and staging carry."""

    id: str = attrs.field(validator=_valid_id)
    namespace: MemoryNamespace = attrs.field(validator=_valid_namespace)
    revision: int = attrs.field(validator=_valid_revision)
    kind: MemoryKind = attrs.field(validator=_valid_kind)
    status: MemoryStatus = attrs.field(validator=_valid_status)
    content: str = attrs.field(repr=False, validator=_valid_content)
    confidence: float = attrs.field(converter=to_confidence, default=0.5)
    importance: float = attrs.field(converter=to_importance, default=0.5)
    evidence: tuple[EvidenceRef, ...] = attrs.field(converter=to_evidence, factory=tuple, repr=_count)
    relations: tuple[MemoryRelation, ...] = attrs.field(converter=to_relations, factory=tuple)
    labels: Labels = attrs.field(converter=to_labels, factory=Labels)
    created_at: Timestamp = attrs.field(converter=to_timestamp)
    updated_at: Timestamp = attrs.field(converter=to_timestamp)
    revision_kind: RevisionKind = attrs.field(validator=_valid_revision_kind)

    def __attrs_post_init__(self) -> None:
        _check_sizes(self)

    def has_relation(self, kind: RelationKind) -> bool:
        """Whether any relation of that kind leaves this node."""
        return any(relation.kind is kind for relation in self.relations)

    def as_revision(self) -> NodeRevision:
        """Return this state as the immutable revision that history keeps."""
        return NodeRevision(**{name: getattr(self, name) for name in _REVISION_FIELDS})

    def with_history(self, history: tuple[NodeRevision, ...]) -> MemoryNode:
        """Return the whole node: this head and its earlier revisions, oldest first."""
        return MemoryNode(**{name: getattr(self, name) for name in _HEAD_FIELDS}, history=history)


_HEAD_FIELDS = tuple(a.name for a in attrs.fields(NodeHead))
_REVISION_FIELDS = tuple(a.name for a in attrs.fields(NodeRevision))


_to_history = as_tuple("node.history", NodeRevision)


def to_history(value: Iterable[NodeRevision]) -> tuple[NodeRevision, ...]:
    """Return a history as a tuple. Raises InvalidInput for anything else."""
    return _to_history(value)


@attrs.frozen(kw_only=True)
class MemoryNode(NodeHead):
    """A whole node: its current state and every earlier revision, oldest first."""

    history: tuple[NodeRevision, ...] = attrs.field(converter=to_history, factory=tuple, repr=_count)

    @property
    def head(self) -> NodeHead:
        """The current state alone."""
        return NodeHead(**{name: getattr(self, name) for name in _HEAD_FIELDS})

    def at_revision(self, revision: int) -> MemoryNode:
        """Return the node as it was when `revision` was current.

        Raises:
            NodeRevisionNotFound: the node has no such revision.
        """
        if revision == self.revision:
            return self
        for place, earlier in enumerate(self.history):
            if earlier.revision == revision:
                fields = {name: getattr(earlier, name) for name in _REVISION_FIELDS}
                return MemoryNode(
                    id=self.id,
                    namespace=self.namespace,
                    created_at=self.created_at,
                    history=self.history[:place],
                    **fields,
                )
        raise NodeRevisionNotFound(self.id, revision)


@attrs.frozen(kw_only=True)
class AccessEvent:
    """That one revision entered a model's input (admission) or was used.

    Args:
        id: idempotency identity within namespace and kind, 1 to 256 bytes.
        namespace: the exact owner.
        node_id: the node.
        node_revision: at least 1.
        occurred_at: not before that revision's time.
        context_id: opaque identity of the model context, 1 to 256 bytes, or None.

    Raises:
        InvalidInput: a field is malformed.
        LimitExceeded: a field is too long.
    """

    id: str = attrs.field(validator=text("accessEvent.id", limits.MAX_IDENTIFIER_BYTES))
    namespace: MemoryNamespace = attrs.field(validator=instance_of("accessEvent.namespace", MemoryNamespace))
    node_id: str = attrs.field(validator=text("accessEvent.nodeId", limits.MAX_IDENTIFIER_BYTES))
    node_revision: int = attrs.field(validator=whole("accessEvent.nodeRevision", 1))
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)
    context_id: str | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(text("accessEvent.contextId", limits.MAX_IDENTIFIER_BYTES)),
    )


@attrs.frozen
class UsageSummary:
    """How often a node was admitted into contexts and used, over all its revisions."""

    admissions: int = attrs.field(default=0, validator=whole("usage.admissions", 0))
    uses: int = attrs.field(default=0, validator=whole("usage.uses", 0))
