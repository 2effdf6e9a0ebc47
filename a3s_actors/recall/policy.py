"""How much a recall may return, and how good it has to be."""

from __future__ import annotations

import attrs

from a3s_actors.memory._checks import unit_interval, whole

__all__ = ["DurableMemoryRecallPolicy"]

_to_min_lexical_score = unit_interval("policy.minLexicalScore")


def to_min_lexical_score(value: float) -> float:
    """Return a score at float32 precision. Raises InvalidInput outside 0 to 1."""
    return _to_min_lexical_score(value)


@attrs.frozen
class DurableMemoryRecallPolicy:
    """The bounds of a recall. The first two have no default: they are the host's decision.

    Args:
        max_results: 1 to 100 hits.
        min_lexical_score: the lowest lexical score that is served, 0 to 1, kept at float32 precision like the
            scores, so that nine words of ten reach 0.9.
        max_related_lookups: how many related memories may be read besides, 0 to 100; 0 follows no relation.

    Raises:
        InvalidInput: a figure is malformed or too small.
        LimitExceeded: a figure is too large.
    """

    max_results: int = attrs.field(validator=whole("policy.maxResults", 1, 100))
    min_lexical_score: float = attrs.field(converter=to_min_lexical_score)
    max_related_lookups: int = attrs.field(default=0, validator=whole("policy.maxRelatedLookups", 0, 100))
