"""Reading active memories: the lexical step, the one-hop related step, and the one order of their hits.

Each step is a function of its own; a serving session puts its semantic step between them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import trio

from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.lexical import float32, has_alphanumeric
from a3s_actors.memory.reads import MemoryQuery
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.values import MemoryKind, MemoryNamespace, MemoryStatus, NodeHead, RelationKind
from a3s_actors.recall.policy import DurableMemoryRecallPolicy

__all__ = [
    "RELATED_FACTOR",
    "RecallChannel",
    "RecallHit",
    "lexical_hits",
    "lexical_recall",
    "order_hits",
    "related_hits",
]

RELATED_FACTOR: Final = 0.75
"""What part of its seed's score a related memory gets."""


class RecallChannel(enum.Enum):
    """How a memory was found. The order of the members breaks ties of the score."""

    HYBRID = "hybrid"
    LEXICAL = "lexical"
    SEMANTIC = "semantic"
    RELATED = "related"


_CHANNEL_ORDER = {channel: place for place, channel in enumerate(RecallChannel)}


@attrs.frozen(kw_only=True)
class RecallHit:
    """One memory that a recall found.

    Attributes:
        node: the exact revision that was found, without its history.
        score: 0 to 1 at float32 precision.
        channel: how it was found.
        related_from: the id of the memory whose relation led here; None in other channels.
    """

    node: NodeHead
    score: float
    channel: RecallChannel
    related_from: str | None = None

    @property
    def node_id(self) -> str:
        """The memory's id."""
        return self.node.id

    @property
    def node_revision(self) -> int:
        """The revision that was found."""
        return self.node.revision

    @property
    def kind(self) -> MemoryKind:
        """The memory's kind."""
        return self.node.kind

    @property
    def content(self) -> str:
        """The memory's text at that revision."""
        return self.node.content


async def lexical_hits(
    repository: MemoryRepository, namespace: MemoryNamespace, policy: DurableMemoryRecallPolicy, text: str
) -> list[RecallHit]:
    """Query the active memories of one namespace by their words.

    Args:
        repository: is read once.
        namespace: the one exact namespace.
        policy: gives the limit and the lowest score.
        text: needs a letter or digit.

    Returns:
        At most `max_results` hits in the repository's order, each with at least `min_lexical_score`.

    Raises:
        InvalidInput: the text has no letter or digit, or is no Unicode text.
        MemoryRepositoryError: the repository did not answer.

    Cancellation: as the repository's `query`; nothing changes.
    """
    query = MemoryQuery(namespace=namespace, text=text, limit=policy.max_results)
    return [
        RecallHit(node=hit.node, score=hit.score, channel=RecallChannel.LEXICAL)
        for hit in await repository.query(query)
        if hit.score >= policy.min_lexical_score
    ]


async def related_hits(
    repository: MemoryRepository,
    namespace: MemoryNamespace,
    policy: DurableMemoryRecallPolicy,
    seeds: Sequence[RecallHit],
) -> list[RecallHit]:
    """Follow the related_to relations of `seeds` by one hop, within the policy's number of reads.

    Seeds are followed in their order, the relations of each in the node's order. A memory that is known already
    (a seed, or a target read before) is not read again; a target that is missing or not active costs its read.
    Other relations are never followed, and hits of this step are no seeds.

    Returns:
        The active targets, each with three quarters of its seed's score and `related_from`.

    Raises:
        MemoryRepositoryError: the repository did not answer.

    Cancellation: between two reads and as the repository's `get_heads`; nothing changes.
    """
    wanted: dict[str, RecallHit] = {}
    known = {seed.node_id for seed in seeds}
    for seed in seeds:
        for relation in seed.node.relations:
            if len(wanted) == policy.max_related_lookups:
                break
            if relation.kind is RelationKind.RELATED_TO and relation.target_id not in known:
                known.add(relation.target_id)
                wanted[relation.target_id] = seed
    if not wanted:
        return []
    # One read of all at one point: the bound is on how many memories are looked up, not on calls.
    heads = await repository.get_heads(namespace, wanted)
    return [
        RecallHit(
            node=heads[node_id],
            score=float32(seed.score * RELATED_FACTOR),
            channel=RecallChannel.RELATED,
            related_from=seed.node_id,
        )
        for node_id, seed in wanted.items()
        if node_id in heads and heads[node_id].status is MemoryStatus.ACTIVE
    ]


def order_hits(hits: Iterable[RecallHit], policy: DurableMemoryRecallPolicy) -> tuple[RecallHit, ...]:
    """Sort hits by score, channel, newest and id, and cut them to the policy's `max_results`."""

    def place(hit: RecallHit) -> tuple[float, int, int, bytes]:
        return -hit.score, _CHANNEL_ORDER[hit.channel], -hit.node.updated_at.order_key, hit.node_id.encode()

    return tuple(sorted(hits, key=place)[: policy.max_results])


async def lexical_recall(
    repository: MemoryRepository, namespace: MemoryNamespace, policy: DurableMemoryRecallPolicy, text: str
) -> tuple[RecallHit, ...]:
    """Recall active memories by their words and, within the policy, what they relate to. Pure.

    Args:
        repository: is read at most twice.
        namespace: the one exact namespace; nothing is found in, or read from, another.
        policy: the bounds.
        text: what to look for; without a letter or digit nothing is found.

    Returns:
        At most `max_results` hits, best first.

    Raises:
        InvalidInput: the text is no Unicode text.
        MemoryRepositoryError: the repository did not answer.

    Cancellation: always a checkpoint; nothing changes.
    """
    if not isinstance(text, str):
        raise InvalidInput("recall.text", f"must be text, not {type(text).__name__}")
    await trio.lowlevel.checkpoint()
    if not has_alphanumeric(text):
        return ()
    seeds = await lexical_hits(repository, namespace, policy, text)
    return order_hits([*seeds, *await related_hits(repository, namespace, policy, seeds)], policy)
