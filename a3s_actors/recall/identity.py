"""Identities that are computed, never drawn: candidates, turn evidence, admissions, contexts. Pure.

Their preimages persist in repositories: a changed byte here would make yesterday's replay a new event today. They are
frozen by test vectors.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final
from urllib.parse import quote

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory._checks import check_text, check_whole
from a3s_actors.memory.codec import draft_json, string_json
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.timestamps import Timestamp, to_timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, MemoryNodeDraft

__all__ = [
    "CONTEXT_ID_PROFILE",
    "DurableTurnEvidence",
    "admission_event_id",
    "candidate_id",
    "content_digest",
    "context_id",
]

CONTEXT_ID_PROFILE: Final = "a3s.code.memory.context.session-run-invocation-sequence-sha256.v2"
"""How the id of a model context comes to be; kept in a session's binding."""

_TURN_SCHEMA: Final = "a3s.code.memory.turn-evidence.v1"
_CANDIDATE_DOMAIN: Final = b"a3s.code.memory.candidate.v1\0"
_ADMISSION_DOMAIN: Final = b"a3s.code.memory.admission.v1\0"
_CONTEXT_DOMAIN: Final = CONTEXT_ID_PROFILE.encode() + b"\0"


@attrs.frozen(kw_only=True)
class DurableTurnEvidence:
    """The turn that a proposal came from: the same bounded, redacted texts that the extraction saw.

    Only `reference` leaves this object; the texts stay with the host.

    Args:
        session_id, turn_id: not blank; they are percent-encoded into the reference's uri, which may be 2048 bytes.
        prompt, response, transcript: texts; may be empty.
        occurred_at: when the turn ended.

    Raises:
        InvalidInput: a field is malformed.
    """

    session_id: str
    turn_id: str
    prompt: str = attrs.field(repr=False)
    response: str = attrs.field(repr=False)
    transcript: str = attrs.field(repr=False)
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)

    def __attrs_post_init__(self) -> None:
        check_text("turnEvidence.sessionId", self.session_id, limits.MAX_EVIDENCE_URI_BYTES)
        check_text("turnEvidence.turnId", self.turn_id, limits.MAX_EVIDENCE_URI_BYTES)
        for name in ("prompt", "response", "transcript"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidInput(f"turnEvidence.{name}", f"must be text, not {type(value).__name__}")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidInput(f"turnEvidence.{name}", "holds a lone surrogate, which is no Unicode text") from None

    def reference(self) -> EvidenceRef:
        """Return the evidence that names the turn: a uri without text, and the digest of the texts.

        Raises:
            LimitExceeded: the encoded ids make a uri of more than 2048 bytes.
        """
        payload = (
            f'{{"schema":"{_TURN_SCHEMA}","sessionId":{string_json(self.session_id)}'
            f',"prompt":{string_json(self.prompt)},"response":{string_json(self.response)}'
            f',"transcript":{string_json(self.transcript)}}}'
        )
        return EvidenceRef(
            uri=f"a3s://session/{quote(self.session_id, safe='')}/turn/{quote(self.turn_id, safe='')}",
            digest=f"sha256:{hashlib.sha256(payload.encode()).hexdigest()}",
            kind=EvidenceKind.SESSION_TURN,
            occurred_at=self.occurred_at,
        )


def candidate_id(draft: MemoryNodeDraft) -> str:
    """Return the id (and change set key) of a proposal: a digest of its draft, whatever id that has.

    So the same proposal from the same turn is the same candidate, and a replay is a replay.
    """
    marker = f'{{"id":{string_json(draft.id)},'
    text = draft_json(draft)
    assert text.startswith(marker)
    nameless = f'{{"id":"",{text[len(marker) :]}'
    return f"a3s-code-candidate-{hashlib.sha256(_CANDIDATE_DOMAIN + nameless.encode()).hexdigest()}"


def content_digest(content: str) -> str:
    """Return "sha256:" and the hex digest of a text's UTF-8 bytes."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def context_id(session_id: str, run_id: str, incarnation: bytes, sequence: int) -> str:
    """Return the opaque id of one final model context; none of its parts can be read from it.

    Args:
        session_id: the host's name of the session, not blank.
        run_id: its name of the run, not blank.
        incarnation: bytes from the operating system's entropy, one draw for each invocation.
        sequence: which context of the invocation, from 0.

    Raises:
        InvalidInput: a part is malformed.
    """
    check_text("context.sessionId", session_id, None)
    check_text("context.runId", run_id, None)
    check_whole("context.sequence", sequence, 0, (1 << 64) - 1)
    drawn: object = incarnation
    if not isinstance(drawn, bytes) or not drawn:
        raise InvalidInput("context.incarnation", "must be bytes, at least one")
    state = hashlib.sha256(_CONTEXT_DOMAIN)
    for part in (session_id.encode(), run_id.encode(), incarnation):
        state.update(struct.pack("<Q", len(part)) + part)
    state.update(struct.pack("<Q", sequence))
    return f"a3s-code-context-v2-{state.hexdigest()}"


def admission_event_id(context: str, node_id: str, node_revision: int) -> str:
    """Return the id of the admission of one exact revision into one exact context."""
    preimage = b"\0".join((context.encode(), node_id.encode(), struct.pack("<Q", node_revision)))
    return f"a3s-code-admission-{hashlib.sha256(_ADMISSION_DOMAIN + preimage).hexdigest()}"
