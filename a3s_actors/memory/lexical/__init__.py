"""The lexical profiles: how a text becomes tokens, and how a query scores against them. Pure; stdlib only.

Modules, each importing only those above it: _unicode17 (generated tables), _ranges (tables to regular
expressions) / characters (lower case, blank, alphanumeric) / tokenizer (the two profiles), scores.
"""

from a3s_actors.memory.lexical.characters import has_alphanumeric, is_blank, lowercase
from a3s_actors.memory.lexical.scores import coverage, float32
from a3s_actors.memory.lexical.tokenizer import (
    LEGACY_LEXICAL_PROFILE,
    LEXICAL_PROFILE,
    fingerprint,
    legacy_tokens,
    tokens,
)

__all__ = [
    "LEGACY_LEXICAL_PROFILE",
    "LEXICAL_PROFILE",
    "coverage",
    "fingerprint",
    "float32",
    "has_alphanumeric",
    "is_blank",
    "legacy_tokens",
    "lowercase",
    "tokens",
]
