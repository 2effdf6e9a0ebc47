"""Admission: what really enters a model's context leaves an audit record first, or does not enter."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import AccessEvent, MemoryNamespace
from a3s_actors.recall.identity import admission_event_id, content_digest, context_id
from a3s_actors.recall.policy import DurableMemoryRecallPolicy
from a3s_actors.recall.reading import RecallHit, lexical_recall

__all__ = [
    "DURABLE_SOURCE",
    "MAX_CLOCK_SKEW_SECONDS",
    "AdmissionReport",
    "DurableContextItem",
    "DurableMemoryTurn",
    "RemovalReason",
    "RemovedItem",
]

DURABLE_SOURCE: Final = "a3s.durable-memory.v2"
"""The source of context items that are durable memories."""

MAX_CLOCK_SKEW_SECONDS: Final = 5
"""How far a host's clock may be behind a revision's time and still be taken for that time."""


class RemovalReason(enum.Enum):
    """Why an item may not enter the context. Bounded codes: they hold no text."""

    NOT_RECALLED = "not_recalled"  # no item of this turn
    CHANGED = "changed"  # its text or revision is not what was recalled
    REPEATED = "repeated"  # it is there already
    NOT_ADMISSIBLE = "not_admissible"  # stale, inactive or purged meanwhile
    CONFLICT = "conflict"  # the admission's id has other values
    STORAGE = "storage"  # the record could not be stored
    NO_HOST_TIME = "no_host_time"
    NO_IDENTITY = "no_identity"
    CLOCK_BEHIND = "clock_behind"  # the host's clock is before the memory's time


@attrs.frozen(kw_only=True)
class DurableContextItem:
    """One recalled memory as an item of a context. The host may leave items out, not alter them.

    Attributes:
        node_id, node_revision: the exact revision.
        content: its text: untrusted data, to be quoted and never obeyed.
        content_digest: "sha256:…" of the text.
        hit: how it was found.
        source: DURABLE_SOURCE.
    """

    node_id: str
    node_revision: int
    content: str = attrs.field(repr=False)
    content_digest: str
    hit: RecallHit = attrs.field(repr=False)
    source: str = DURABLE_SOURCE

    @classmethod
    def of(cls, hit: RecallHit) -> DurableContextItem:
        """Return the item of a recall hit."""
        return cls(
            node_id=hit.node_id,
            node_revision=hit.node_revision,
            content=hit.content,
            content_digest=content_digest(hit.content),
            hit=hit,
        )


@attrs.frozen
class RemovedItem:
    """An item that did not enter the context, and why."""

    node_id: str
    reason: RemovalReason


@attrs.frozen(kw_only=True)
class AdmissionReport:
    """What became of the items of one final context.

    Attributes:
        context_id: the context's opaque id; None when there was no identity.
        admitted: the items that may enter, in the order given; each has its audit record.
        removed: the others.
        clamped: ids of memories whose time was taken in place of the host's, which was slightly behind it.
    """

    context_id: str | None
    admitted: tuple[DurableContextItem, ...]
    removed: tuple[RemovedItem, ...]
    clamped: tuple[str, ...] = ()


class DurableMemoryTurn:
    """One invocation of a model loop: recall, then admit each final context. Made by `DurableMemorySession.turn`.

    Whoever shares the invocation shares this object: its contexts are numbered in one sequence.
    """

    def __init__(
        self,
        repository: MemoryRepository,
        namespace: MemoryNamespace,
        policy: DurableMemoryRecallPolicy,
        *,
        session_id: str | None,
        run_id: str | None,
        now: Callable[[], Timestamp | None],
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._repository = repository
        self._namespace = namespace
        self._policy = policy
        self._session_id = session_id
        self._run_id = run_id
        self._now = now
        self._incarnation = entropy(16)
        self._sequence = 0
        self._recalled: dict[str, DurableContextItem] = {}

    @property
    def next_context_id(self) -> str | None:
        """The id that the next final context will have; None without an identity."""
        if not self._session_id or not self._run_id:
            return None
        return context_id(self._session_id, self._run_id, self._incarnation, self._sequence)

    async def recall(self, text: str) -> tuple[DurableContextItem, ...]:
        """Recall memories for this invocation, as items for its contexts. Records nothing.

        Raises:
            InvalidInput: the text is no Unicode text.
            MemoryRepositoryError: the repository did not answer.

        Cancellation: a checkpoint; nothing changes.
        """
        hits = await lexical_recall(self._repository, self._namespace, self._policy, text)
        items = tuple(DurableContextItem.of(hit) for hit in hits)
        self._recalled.update((item.node_id, item) for item in items)
        return items

    async def admit(self, items: Iterable[DurableContextItem]) -> AdmissionReport:
        """Record the admission of each item of one final context; call it right before the model is called.

        What cannot be admitted is in `removed` and must not be sent to the model. Each call is another context: a
        tool round that assembles anew admits anew.

        Args:
            items: what is left of this turn's recalled items in the final context, in its order.

        Cancellation: between two items or as the repository's `record_admission`; items that were recorded stay
        recorded, though the context was not used.
        """
        context = self._next_context()
        admitted: list[DurableContextItem] = []
        removed: list[RemovedItem] = []
        clamped: list[str] = []
        await trio.lowlevel.checkpoint()
        for item in items:
            reason = self._precheck(item, admitted, context)
            if reason is None:
                assert context is not None
                reason = await self._record(item, context, clamped)
            if reason is None:
                admitted.append(item)
            else:
                removed.append(RemovedItem(str(getattr(item, "node_id", "")), reason))
        return AdmissionReport(
            context_id=context, admitted=tuple(admitted), removed=tuple(removed), clamped=tuple(clamped)
        )

    def _next_context(self) -> str | None:
        made = self.next_context_id
        if made is not None:
            self._sequence += 1
        return made

    def _precheck(self, item: object, admitted: list[DurableContextItem], context: str | None) -> RemovalReason | None:
        if not isinstance(item, DurableContextItem) or item.node_id not in self._recalled:
            return RemovalReason.NOT_RECALLED
        known = self._recalled[item.node_id]
        same = (item.node_revision, item.source, item.content_digest) == (
            known.node_revision,
            DURABLE_SOURCE,
            known.content_digest,
        )
        if not same or content_digest(item.content) != known.content_digest:
            return RemovalReason.CHANGED
        if any(other.node_id == item.node_id for other in admitted):
            return RemovalReason.REPEATED
        return RemovalReason.NO_IDENTITY if context is None else None

    async def _record(self, item: DurableContextItem, context: str, clamped: list[str]) -> RemovalReason | None:
        now = self._now()
        if now is None:
            return RemovalReason.NO_HOST_TIME
        updated_at = item.hit.node.updated_at
        if now < updated_at:
            if updated_at.ns - now.ns > MAX_CLOCK_SKEW_SECONDS * 1_000_000_000:
                return RemovalReason.CLOCK_BEHIND
            now = updated_at
        event = AccessEvent(
            id=admission_event_id(context, item.node_id, item.node_revision),
            namespace=self._namespace,
            node_id=item.node_id,
            node_revision=item.node_revision,
            occurred_at=now,
            context_id=context,
        )
        try:
            await self._repository.record_admission(event)
        except MemoryRepositoryError as error:
            return _REASONS.get(error.family.value, RemovalReason.STORAGE)
        if now is updated_at:
            clamped.append(item.node_id)
        return None


_REASONS: Final = {
    "refused": RemovalReason.NOT_ADMISSIBLE,
    "invalid": RemovalReason.NOT_ADMISSIBLE,
    "conflict": RemovalReason.CONFLICT,
}
