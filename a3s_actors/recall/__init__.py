"""Reading and activating durable memories on top of a `MemoryRepository`. Pure functions over its methods.

Modules, each importing only those above it: activation, policy / reading.
"""

from a3s_actors.recall.activation import DECISION_KINDS, DurableMemoryActivation, check_decision_evidence
from a3s_actors.recall.policy import DurableMemoryRecallPolicy
from a3s_actors.recall.reading import RecallChannel, RecallHit, lexical_hits, lexical_recall, order_hits, related_hits

__all__ = [
    "DECISION_KINDS",
    "DurableMemoryActivation",
    "DurableMemoryRecallPolicy",
    "RecallChannel",
    "RecallHit",
    "check_decision_evidence",
    "lexical_hits",
    "lexical_recall",
    "order_hits",
    "related_hits",
]
