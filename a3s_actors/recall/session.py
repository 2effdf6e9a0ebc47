"""`DurableMemorySession`: one repository, one namespace and one policy, bound by the host and given to sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import trio

from a3s_actors.memory import limits
from a3s_actors.memory._checks import check_text
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.lexical import has_alphanumeric
from a3s_actors.memory.operations import ChangeSetResult, Create, MemoryChangeSet
from a3s_actors.memory.reads import MemoryQuery
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.timestamps import Timestamp, to_timestamp
from a3s_actors.memory.values import AccessEvent, Labels, MemoryKind, MemoryNamespace, MemoryNodeDraft, MemoryStatus
from a3s_actors.recall.activation import DurableMemoryActivation
from a3s_actors.recall.admission import DurableMemoryTurn
from a3s_actors.recall.binding import DurableMemoryBindingV1, DurableMemoryMode
from a3s_actors.recall.identity import DurableTurnEvidence, candidate_id
from a3s_actors.recall.policy import DurableMemoryRecallPolicy
from a3s_actors.recall.reading import RecallHit, lexical_recall

__all__ = ["DurableMemoryProposal", "DurableMemorySession", "DurableMemoryUse"]


@attrs.frozen(kw_only=True)
class DurableMemoryProposal:
    """What an extraction proposes to remember. It becomes a candidate, and decides nothing.

    Args:
        content: the memory's text, 1 byte to 64 KiB, not blank.
        kind: episodic, semantic or procedural.
        confidence, importance: 0 to 1; annotations.
        labels: at most 64; a proposal's scope and source belong here, and never choose a namespace.

    Raises (when it is proposed):
        InvalidInput, LimitExceeded: a field is malformed or too large.
    """

    content: str = attrs.field(repr=False)
    kind: MemoryKind = MemoryKind.SEMANTIC
    confidence: float = 0.5
    importance: float = 0.5
    labels: Mapping[str, str] = attrs.field(factory=Labels, repr=lambda labels: f"<{len(labels)}>")


@attrs.frozen(kw_only=True)
class DurableMemoryUse:
    """That one exact revision was cited, selected or otherwise used. Only the host knows.

    Args:
        event_id: idempotency identity, 1 to 256 bytes.
        node_id: the memory.
        node_revision: which revision, at least 1.
        occurred_at: the host's time.
        context_id: the context's opaque id, or None.
    """

    event_id: str
    node_id: str
    node_revision: int
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)
    context_id: str | None = None


class DurableMemorySession:
    """The exact binding of one repository, one namespace and one policy.

    Made by the host with `active_recall`, the only mode. Nothing is inherited, discovered or widened; agents share
    memory when the host gives them this object, or another of the same repository and namespace. It owns nothing: the
    repository is the host's to open and to close.
    """

    def __init__(
        self, repository: MemoryRepository, namespace: MemoryNamespace, policy: DurableMemoryRecallPolicy
    ) -> None:
        # A path or a name is no repository: opening one is the host's decision, and closing it, too.
        if not isinstance(repository, MemoryRepository):
            raise InvalidInput(
                "durableMemory.repository", f"must be an open repository, not {type(repository).__name__}"
            )
        if not isinstance(namespace, MemoryNamespace):
            raise InvalidInput("durableMemory.namespace", f"must be a MemoryNamespace, not {type(namespace).__name__}")
        if not isinstance(policy, DurableMemoryRecallPolicy):
            raise InvalidInput(
                "durableMemory.policy", f"must be a DurableMemoryRecallPolicy, not {type(policy).__name__}"
            )
        self._repository = repository
        self.namespace = namespace
        self.policy = policy

    @classmethod
    def active_recall(
        cls, repository: MemoryRepository, namespace: MemoryNamespace, policy: DurableMemoryRecallPolicy
    ) -> DurableMemorySession:
        """Bind an open repository, one exact namespace and a policy.

        Raises:
            InvalidInput: an argument is not what it should be; a path, a text or a callable is no repository.
        """
        return cls(repository, namespace, policy)

    def __repr__(self) -> str:
        return f"<DurableMemorySession {self.mode.value} {self.namespace}>"

    @property
    def mode(self) -> DurableMemoryMode:
        """How memory is used: active_recall."""
        return DurableMemoryMode.ACTIVE_RECALL

    def binding(self) -> DurableMemoryBindingV1:
        """Return what is persisted in place of this object, and compared on resume."""
        return DurableMemoryBindingV1(namespace=self.namespace, policy=self.policy)

    async def propose(self, proposal: DurableMemoryProposal, evidence: DurableTurnEvidence) -> ChangeSetResult:
        """Store an extraction's proposal as a candidate with the turn's evidence. It is not served.

        The candidate's id is a digest of the proposal and its evidence, so an exact replay returns the first result.
        No existing memory is changed.

        Raises:
            InvalidInput, LimitExceeded: the proposal or the evidence is malformed or too large.
            MemoryRepositoryError: the repository refuses or does not answer.

        Cancellation: as the repository's `apply`.
        """
        reference = evidence.reference()
        draft = MemoryNodeDraft(
            id="proposal",
            namespace=self.namespace,
            kind=proposal.kind,
            status=MemoryStatus.CANDIDATE,
            content=proposal.content,
            confidence=proposal.confidence,
            importance=proposal.importance,
            evidence=(reference,),
            labels=proposal.labels,
            created_at=reference.occurred_at,
        )
        identity = candidate_id(draft)
        change_set = MemoryChangeSet(
            idempotency_key=identity,
            namespace=self.namespace,
            occurred_at=reference.occurred_at,
            operations=(Create(attrs.evolve(draft, id=identity)),),
        )
        return await self._repository.apply(change_set)

    async def holds(self, content: str) -> bool:
        """Whether a candidate or an active memory says the same, white space and case aside. Pure.

        Raises:
            InvalidInput: the text is no Unicode text.
            MemoryRepositoryError: the repository did not answer.

        Cancellation: a checkpoint; nothing changes.
        """
        wanted = _plain(content)
        if not has_alphanumeric(content):
            await trio.lowlevel.checkpoint()
            return False
        question = MemoryQuery(
            namespace=self.namespace,
            text=content,
            statuses=(MemoryStatus.CANDIDATE, MemoryStatus.ACTIVE),
            limit=limits.MAX_QUERY_LIMIT,
        )
        return any(_plain(hit.node.content) == wanted for hit in await self._repository.query(question))

    async def activate_candidate(self, activation: DurableMemoryActivation) -> ChangeSetResult:
        """Carry out a host's decision that one exact revision of a candidate may serve.

        Raises:
            InvalidInput: it is no activation.
            MemoryRepositoryError: the repository refuses (another revision, no candidate, no new evidence) or does
                not answer.

        Cancellation: as the repository's `apply`.
        """
        if not isinstance(activation, DurableMemoryActivation):
            raise InvalidInput("activation", f"must be a DurableMemoryActivation, not {type(activation).__name__}")
        return await self._repository.apply(activation.change_set(self.namespace))

    async def record_use(self, use: DurableMemoryUse) -> None:
        """Record that a revision was really used. Only the host calls it; recall and admission never do.

        Raises:
            InvalidInput, LimitExceeded: a field is malformed.
            MemoryRepositoryError: the repository refuses or does not answer.

        Cancellation: as the repository's `record_use`.
        """
        check_text("use.eventId", use.event_id, limits.MAX_IDENTIFIER_BYTES)
        await self._repository.record_use(
            AccessEvent(
                id=use.event_id,
                namespace=self.namespace,
                node_id=use.node_id,
                node_revision=use.node_revision,
                occurred_at=use.occurred_at,
                context_id=use.context_id,
            )
        )

    async def preview_recall(self, text: str) -> tuple[RecallHit, ...]:
        """Recall as serving does, purely: nothing is recorded, no context is touched. See `lexical_recall`."""
        return await lexical_recall(self._repository, self.namespace, self.policy, text)

    def turn(
        self, *, session_id: str | None, run_id: str | None, now: Callable[[], Timestamp | None] = Timestamp.now
    ) -> DurableMemoryTurn:
        """Begin one invocation of a host's own model loop: recall, assemble, admit, call the model.

            turn = durable.turn(session_id="s1", run_id="r1")
            items = await turn.recall(prompt)
            report = await turn.admit(items)     # right before the model is called
            call_model(prompt, [quote(item.content) for item in report.admitted])

        Args:
            session_id: the host's name of the session; without one nothing is admitted.
            run_id: its name of the run; without one nothing is admitted.
            now: the host's clock; when it gives None nothing is admitted.
        """
        return DurableMemoryTurn(
            self._repository, self.namespace, self.policy, session_id=session_id, run_id=run_id, now=now
        )


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
