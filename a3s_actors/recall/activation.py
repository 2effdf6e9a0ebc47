"""The one way from candidate to active: a host's decision, with evidence of that decision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory._checks import as_tuple, check_text, check_whole
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.operations import Activate, MemoryChangeSet
from a3s_actors.memory.timestamps import Timestamp, to_timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, MemoryNamespace

__all__ = ["DECISION_KINDS", "DurableMemoryActivation", "check_decision_evidence"]

DECISION_KINDS: Final = frozenset({EvidenceKind.MANUAL, EvidenceKind.VERIFICATION})
"""The kinds of evidence that can carry a decision: a person's, or a check's."""

_FIELD: Final = "activation.decisionEvidence"
_to_tuple = as_tuple(_FIELD, EvidenceRef)


def check_decision_evidence(evidence: Iterable[EvidenceRef], field: str = _FIELD) -> None:
    """Refuse evidence that cannot carry a decision.

    What a model, a tool or a user said may propose a memory or support it, but never decides that it may serve.

    Raises:
        InvalidInput: there is none, or one is of another kind than manual or verification.
    """
    items = tuple(evidence)
    if not items:
        raise InvalidInput(field, "must hold at least one piece of manual or verification evidence")
    for item in items:
        if item.kind not in DECISION_KINDS:
            raise InvalidInput(field, f"must be of kind manual or verification, not {item.kind.value}")


def to_decision_evidence(value: EvidenceRef | Iterable[EvidenceRef]) -> tuple[EvidenceRef, ...]:
    """Return one or several pieces of evidence as a tuple. Raises InvalidInput for anything else."""
    return (value,) if isinstance(value, EvidenceRef) else _to_tuple(value)


@attrs.frozen(kw_only=True)
class DurableMemoryActivation:
    """A host's decision that one exact revision of a candidate may serve.

    Args:
        idempotency_key: 1 to 256 bytes; the same decision under the same key happens once.
        node_id: the candidate.
        expected_revision: the revision that was decided on, at least 1.
        decision_evidence: one or several references of kind manual or verification; at least one uri is new to
            the node (the repository checks that).
        occurred_at: the host's time of the decision, not before any of the evidence.

    Raises:
        InvalidInput: a field is malformed, the evidence is of another kind, or it is later than the decision.
        LimitExceeded: a text is too long.
    """

    idempotency_key: str = attrs.field()
    node_id: str = attrs.field()
    expected_revision: int = attrs.field()
    decision_evidence: tuple[EvidenceRef, ...] = attrs.field(
        converter=to_decision_evidence, repr=lambda items: f"<{len(items)}>"
    )
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)

    def __attrs_post_init__(self) -> None:
        check_text("activation.idempotencyKey", self.idempotency_key, limits.MAX_IDENTIFIER_BYTES)
        check_text("activation.nodeId", self.node_id, limits.MAX_IDENTIFIER_BYTES)
        check_whole("activation.expectedRevision", self.expected_revision, 1)
        check_decision_evidence(self.decision_evidence)
        if any(item.occurred_at > self.occurred_at for item in self.decision_evidence):
            raise InvalidInput(f"{_FIELD}.occurredAt", "must not be later than the activation's occurredAt")

    def change_set(self, namespace: MemoryNamespace) -> MemoryChangeSet:
        """Return the change set that carries the decision out in `namespace`."""
        operation = Activate(self.node_id, expected_revision=self.expected_revision, evidence=self.decision_evidence)
        return MemoryChangeSet(
            idempotency_key=self.idempotency_key,
            namespace=namespace,
            occurred_at=self.occurred_at,
            operations=(operation,),
        )
