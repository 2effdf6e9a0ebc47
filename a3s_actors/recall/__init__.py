"""Durable recall: the host's binding of a repository to its agents, and what enters a model's context.

Modules, each importing only those above it: identity, policy / activation, binding, reading / admission / session.
`DurableMemorySession` is the door; the steps of reading are functions of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a3s_actors.recall.activation import DECISION_KINDS as DECISION_KINDS
    from a3s_actors.recall.activation import DurableMemoryActivation as DurableMemoryActivation
    from a3s_actors.recall.activation import check_decision_evidence as check_decision_evidence
    from a3s_actors.recall.admission import AdmissionReport as AdmissionReport
    from a3s_actors.recall.admission import DurableContextItem as DurableContextItem
    from a3s_actors.recall.admission import DurableMemoryTurn as DurableMemoryTurn
    from a3s_actors.recall.admission import RemovalReason as RemovalReason
    from a3s_actors.recall.admission import RemovedItem as RemovedItem
    from a3s_actors.recall.binding import DurableMemoryBindingMismatch as DurableMemoryBindingMismatch
    from a3s_actors.recall.binding import DurableMemoryBindingV1 as DurableMemoryBindingV1
    from a3s_actors.recall.binding import DurableMemoryMode as DurableMemoryMode
    from a3s_actors.recall.binding import check_resumed_binding as check_resumed_binding
    from a3s_actors.recall.identity import DurableTurnEvidence as DurableTurnEvidence
    from a3s_actors.recall.policy import DurableMemoryRecallPolicy as DurableMemoryRecallPolicy
    from a3s_actors.recall.reading import RecallChannel as RecallChannel
    from a3s_actors.recall.reading import RecallHit as RecallHit
    from a3s_actors.recall.reading import lexical_hits as lexical_hits
    from a3s_actors.recall.reading import lexical_recall as lexical_recall
    from a3s_actors.recall.reading import order_hits as order_hits
    from a3s_actors.recall.reading import related_hits as related_hits
    from a3s_actors.recall.session import DurableMemoryProposal as DurableMemoryProposal
    from a3s_actors.recall.session import DurableMemorySession as DurableMemorySession
    from a3s_actors.recall.session import DurableMemoryUse as DurableMemoryUse

_HOMES = {
    "activation": "DECISION_KINDS DurableMemoryActivation check_decision_evidence",
    "admission": "AdmissionReport DurableContextItem DurableMemoryTurn RemovalReason RemovedItem",
    "binding": "DurableMemoryBindingMismatch DurableMemoryBindingV1 DurableMemoryMode check_resumed_binding",
    "identity": "DurableTurnEvidence",
    "policy": "DurableMemoryRecallPolicy",
    "reading": "RecallChannel RecallHit lexical_hits lexical_recall order_hits related_hits",
    "session": "DurableMemoryProposal DurableMemorySession DurableMemoryUse",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list of names, computed


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__]
