"""`DurableMemoryBindingV1`: what is persisted with a session in place of its live memory, and compared on resume."""

from __future__ import annotations

import enum
from typing import Any, Final

import attrs

from a3s_actors.memory.codec import float_json, namespace_json
from a3s_actors.memory.decoding import parse_json, structure
from a3s_actors.memory.errors import InvalidInput, MemoryRepositoryError
from a3s_actors.memory.lexical import LEGACY_LEXICAL_PROFILE, LEXICAL_PROFILE
from a3s_actors.memory.values import MemoryNamespace
from a3s_actors.recall.identity import CONTEXT_ID_PROFILE
from a3s_actors.recall.policy import DurableMemoryRecallPolicy

__all__ = ["DurableMemoryBindingMismatch", "DurableMemoryBindingV1", "DurableMemoryMode", "check_resumed_binding"]

_HOST_ID: Final = "a3s.code.memory.context.host-id.v0"
_SEQUENCE: Final = "a3s.code.memory.context.session-run-sequence-sha256.v1"
_COMBINATIONS: Final = {
    1: (LEGACY_LEXICAL_PROFILE, _HOST_ID),
    2: (LEXICAL_PROFILE, _HOST_ID),
    3: (LEXICAL_PROFILE, _SEQUENCE),
    4: (LEXICAL_PROFILE, CONTEXT_ID_PROFILE),
}
_REQUIRED: Final = {"schemaVersion", "namespace", "mode", "recallPolicy"}
_OPTIONAL: Final = {"retrievalProfile", "contextIdProfile"}
_POLICY: Final = {"maxResults", "minLexicalScore", "maxRelatedLookups"}


class DurableMemoryMode(enum.Enum):
    """How a session uses durable memory. There is one mode; a persisted other one is refused."""

    ACTIVE_RECALL = "active_recall"


class DurableMemoryBindingMismatch(MemoryRepositoryError):
    """A resumed session's memory is not the one it was saved with.

    Attributes:
        field: the first field that differs, as the JSON names it; "durableMemory" when one side has no memory.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"durable memory binding, {self.field}: {self.message}"


@attrs.frozen(kw_only=True)
class DurableMemoryBindingV1:
    """The exact binding of a session to its memory, without anything live or secret.

    Args:
        namespace: the one exact namespace.
        policy: the recall policy.
        mode: active_recall.
        schema_version: 1 to 4; new bindings are 4.
        retrieval_profile, context_id_profile: those that belong to the schema.

    Raises:
        InvalidInput: the schema is unknown, or a profile does not belong to it.
    """

    namespace: MemoryNamespace
    policy: DurableMemoryRecallPolicy
    mode: DurableMemoryMode = DurableMemoryMode.ACTIVE_RECALL
    schema_version: int = 4
    retrieval_profile: str = LEXICAL_PROFILE
    context_id_profile: str = CONTEXT_ID_PROFILE

    def __attrs_post_init__(self) -> None:
        version: object = self.schema_version
        combination = _COMBINATIONS.get(version) if type(version) is int else None
        if combination is None:
            raise InvalidInput("binding.schemaVersion", f"must be one of {', '.join(map(str, _COMBINATIONS))}")
        for field, wanted, actual in zip(
            ("retrievalProfile", "contextIdProfile"),
            combination,
            (self.retrieval_profile, self.context_id_profile),
            strict=True,
        ):
            if actual != wanted:
                raise InvalidInput(f"binding.{field}", f"schema {self.schema_version} has {wanted}, and no other")

    def to_json(self) -> str:
        """Return the binding's JSON: camelCase, every field written, always the same bytes."""
        policy = self.policy
        return (
            f'{{"schemaVersion":{self.schema_version},"namespace":{namespace_json(self.namespace)}'
            f',"mode":"{self.mode.value}","recallPolicy":{{"maxResults":{policy.max_results}'
            f',"minLexicalScore":{float_json(policy.min_lexical_score)}'
            f',"maxRelatedLookups":{policy.max_related_lookups}}}'
            f',"retrievalProfile":"{self.retrieval_profile}","contextIdProfile":"{self.context_id_profile}"}}'
        )

    @classmethod
    def from_json(cls, data: bytes | str) -> DurableMemoryBindingV1:
        """Read a persisted binding, strictly. Missing profiles are schema 1's.

        Raises:
            InvalidInput, LimitExceeded: a field is unknown, missing or malformed; the mode is no longer one; the
                schema is unknown, or a profile does not belong to it.
        """
        fields = parse_json(data)
        _check_names("binding", fields, _REQUIRED, _OPTIONAL)
        policy = fields["recallPolicy"]
        _check_names("binding.recallPolicy", policy, _POLICY, set())
        if fields["mode"] != DurableMemoryMode.ACTIVE_RECALL.value:
            raise InvalidInput("binding.mode", "must be active_recall; no other mode can be resumed")
        retrieval, context = _COMBINATIONS[1]
        return cls(
            schema_version=fields["schemaVersion"],
            namespace=structure(fields["namespace"], MemoryNamespace),
            policy=DurableMemoryRecallPolicy(
                policy["maxResults"], policy["minLexicalScore"], policy["maxRelatedLookups"]
            ),
            retrieval_profile=fields.get("retrievalProfile", retrieval),
            context_id_profile=fields.get("contextIdProfile", context),
        )


def _check_names(where: str, value: Any, required: set[str], optional: set[str]) -> None:
    if not isinstance(value, dict):
        raise InvalidInput(where, "must be an object")
    unknown = sorted(value.keys() - required - optional)
    if unknown:
        raise InvalidInput(f"{where}.{unknown[0][:64]}", "is no field of the schema")
    missing = sorted(required - value.keys())
    if missing:
        raise InvalidInput(f"{where}.{missing[0]}", "is missing")


def check_resumed_binding(saved: DurableMemoryBindingV1 | None, injected: DurableMemoryBindingV1 | None) -> None:
    """Refuse to resume with another memory than the saved one.

    Args:
        saved: what was persisted with the session; None when it had no memory.
        injected: the binding of the memory that the host gives now; None for none.

    Raises:
        DurableMemoryBindingMismatch: anything differs; names the first field.
    """
    if saved is None or injected is None:
        if saved is not injected:
            said = "was saved with one, none was given" if injected is None else "was saved without one, one was given"
            raise DurableMemoryBindingMismatch("durableMemory", f"the session {said}; give what it was saved with")
        return
    for field, pick in _COMPARED:
        if pick(saved) != pick(injected):
            raise DurableMemoryBindingMismatch(field, "differs from what the session was saved with")


_COMPARED: Final[tuple[tuple[str, Any], ...]] = (
    ("schemaVersion", lambda each: each.schema_version),
    ("namespace.tenantId", lambda each: each.namespace.tenant_id),
    ("namespace.principalId", lambda each: each.namespace.principal_id),
    ("namespace.scopeId", lambda each: each.namespace.scope_id),
    ("mode", lambda each: each.mode),
    ("recallPolicy.maxResults", lambda each: each.policy.max_results),
    ("recallPolicy.minLexicalScore", lambda each: each.policy.min_lexical_score),
    ("recallPolicy.maxRelatedLookups", lambda each: each.policy.max_related_lookups),
    ("retrievalProfile", lambda each: each.retrieval_profile),
    ("contextIdProfile", lambda each: each.context_id_profile),
)
