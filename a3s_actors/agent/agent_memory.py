"""V1 memory: the simple store that hosts already have. No evidence, no activation, no task; state only.

Relevance is 0.7 times importance plus 0.3 times exp(-age in days / 30). An item that a newer one supersedes is kept,
hidden from recall, never pruned, and shown by the audit.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from a3s_actors.memory._checks import check_text, check_whole
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.lexical import tokens
from a3s_actors.memory.timestamps import Timestamp, to_timestamp

__all__ = ["AgentMemory", "AgentMemoryWeights", "MemoryItem", "MemoryItemType", "PrunePolicy", "ScoredItem"]

MAX_TAG_BYTES: Final = 64
_DAY_NS: Final = 86_400 * 1_000_000_000


class MemoryItemType(enum.Enum):
    """What an item is."""

    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    WORKING = "working"


def _to_tags(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidInput("memoryItem.tags", "must be a sequence of texts")
    return tuple(value)


def _to_metadata(value: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(value))


def _unit(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise InvalidInput(field, "must be a finite number from 0 to 1")


@attrs.frozen(kw_only=True)
class MemoryItem:
    """One item.

    Args:
        id: unique in its memory, 1 to 256 bytes.
        content: its text, not blank, at most 64 KiB.
        created_at: when it came to be.
        importance: 0 to 1.
        type: what it is.
        tags: texts of at most 64 bytes; at most 64.
        metadata: short texts, such as a proposal's scope and source.
        access_count: how often it was returned by a search that counts.
        last_accessed: when.
        superseded_by: the newer item that replaced it, or None.

    Raises:
        InvalidInput, LimitExceeded: a field is malformed or too long.
    """

    id: str
    content: str = attrs.field(repr=False)
    created_at: Timestamp = attrs.field(converter=to_timestamp)
    importance: float = 0.5
    type: MemoryItemType = MemoryItemType.SEMANTIC
    tags: tuple[str, ...] = attrs.field(default=(), converter=_to_tags, repr=False)
    metadata: Mapping[str, str] = attrs.field(factory=dict, converter=_to_metadata, repr=False, hash=False)
    access_count: int = 0
    last_accessed: Timestamp | None = None
    superseded_by: str | None = None

    def __attrs_post_init__(self) -> None:
        check_text("memoryItem.id", self.id, 256)
        check_text("memoryItem.content", self.content, 64 * 1024)
        _unit("memoryItem.importance", self.importance)
        if not isinstance(self.type, MemoryItemType):
            raise InvalidInput("memoryItem.type", "must be a MemoryItemType")
        check_whole("memoryItem.tags", len(self.tags), 0, 64)
        for tag in self.tags:
            check_text("memoryItem.tags", tag, MAX_TAG_BYTES)
        check_whole("memoryItem.metadata", len(self.metadata), 0, 64)
        for key, value in self.metadata.items():
            check_text("memoryItem.metadata", key, 64)
            check_text("memoryItem.metadata", value, 1024, empty_ok=True)
        check_whole("memoryItem.accessCount", self.access_count, 0)


@attrs.frozen(kw_only=True)
class AgentMemoryWeights:
    """How relevance is weighed: importance and age, each at least 0; half-life like `decay_days`, above 0."""

    importance: float = 0.7
    recency: float = 0.3
    decay_days: float = 30.0

    def __attrs_post_init__(self) -> None:
        for name in ("importance", "recency", "decay_days"):
            value: object = getattr(self, name)
            low = 0.0 if name != "decay_days" else math.ulp(0.0)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < math.inf:
                raise InvalidInput(f"weights.{name}", "must be a finite number, not negative; decay above 0")

    def relevance(self, item: MemoryItem, now: Timestamp) -> float:
        """Return an item's relevance at a moment. An item from the future counts as new."""
        age = max(0, now.ns - item.created_at.ns) / _DAY_NS
        return self.importance * item.importance + self.recency * math.exp(-age / self.decay_days)


@attrs.frozen(kw_only=True)
class PrunePolicy:
    """What pruning may remove. Superseded items are never removed.

    Args:
        max_items: keep at most so many; the least relevant go. None: no bound.
        max_age_days: items older than that go, unless they are important. None: no bound.
        min_importance: items at least this important are kept at any age; 0 to 1.

    Raises:
        InvalidInput: a value is out of range.
    """

    max_items: int | None = 10_000
    max_age_days: float | None = None
    min_importance: float = 0.8

    def __attrs_post_init__(self) -> None:
        if self.max_items is not None:
            check_whole("prune.maxItems", self.max_items, 0)
        age: object = self.max_age_days
        if age is not None and (isinstance(age, bool) or not isinstance(age, int | float) or not 0 <= age < math.inf):
            raise InvalidInput("prune.maxAgeDays", "must be a finite number, not negative, or None")
        _unit("prune.minImportance", self.min_importance)


@attrs.frozen
class ScoredItem:
    """A found item and its score, higher is better."""

    item: MemoryItem
    score: float


class AgentMemory:
    """Items in memory. Made by the host, and handed to sessions; synchronous, so each method is atomic among tasks.

    Construction has no side effect: no task starts, nothing is read.

    Args:
        weights: how relevance is weighed.
        short_term_capacity: how many of the newest items `short_term` keeps.
        working_capacity: how many texts of the current work `working` keeps.
    """

    def __init__(
        self,
        weights: AgentMemoryWeights | None = None,
        *,
        short_term_capacity: int = 100,
        working_capacity: int = 10,
    ) -> None:
        check_whole("agentMemory.shortTermCapacity", short_term_capacity, 1)
        check_whole("agentMemory.workingCapacity", working_capacity, 1)
        self.weights = AgentMemoryWeights() if weights is None else weights
        self._items: dict[str, MemoryItem] = {}
        self._words: dict[str, frozenset[str]] = {}
        self._short: deque[str] = deque(maxlen=short_term_capacity)
        self._working: deque[MemoryItem] = deque(maxlen=working_capacity)

    def __repr__(self) -> str:
        return f"<AgentMemory {len(self._items)} items>"

    def __len__(self) -> int:
        return len(self._items)

    def remember(self, item: MemoryItem, *, supersedes: Iterable[str] = ()) -> MemoryItem:
        """Keep an item; mark the items that it supersedes, where they are there and not superseded yet.

        Raises:
            InvalidInput: it is no item, its id is taken by other values, or it supersedes itself. Nothing changed.
        """
        if not isinstance(item, MemoryItem):
            raise InvalidInput("agentMemory.item", f"must be a MemoryItem, not {type(item).__name__}")
        older = tuple(supersedes)
        known = self._items.get(item.id)
        if known is not None and known.content != item.content:
            raise InvalidInput("agentMemory.item.id", "is taken by another item")
        if item.id in older:
            raise InvalidInput("agentMemory.supersedes", "names the item itself")
        if known is None:
            self._items[item.id] = item
            self._words[item.id] = frozenset(tokens(item.content))
            (self._working.append(item) if item.type is MemoryItemType.WORKING else self._short.append(item.id))
        for each in older:
            old = self._items.get(each)
            if old is not None and old.superseded_by is None and not self._leads_to(item.id, each):
                self._items[each] = attrs.evolve(old, superseded_by=item.id)
        return self._items[item.id]

    def _leads_to(self, start: str, wanted: str) -> bool:
        """Whether `wanted` is among those that replaced `start`: marking it would close a circle."""
        current: str | None = start
        while current is not None:
            if current == wanted:
                return True
            item = self._items.get(current)
            current = None if item is None else item.superseded_by
        return False

    def get(self, item_id: str) -> MemoryItem | None:
        """Return an item, superseded ones included; None when there is none."""
        return self._items.get(item_id)

    def search(self, text: str, now: Timestamp, *, limit: int = 10, count: bool = True) -> tuple[ScoredItem, ...]:
        """Find items that share words with a text: by word overlap, then relevance, then id. No superseded ones.

        Args:
            text: what to look for.
            now: the moment for the ages, and for the access counts.
            limit: at least 1.
            count: whether the found items' access counts rise.
        """
        check_whole("agentMemory.limit", limit, 1)
        wanted = frozenset(tokens(text))
        if not wanted:
            return ()
        found = []
        for item in self._serving():
            overlap = len(wanted & self._words[item.id]) / len(wanted)
            if overlap > 0:
                found.append((-overlap, -self.weights.relevance(item, now), item.id))
        chosen = []
        for overlap, _, item_id in sorted(found)[:limit]:
            if count:
                self._touch(item_id, now)
            chosen.append(ScoredItem(self._items[item_id], -overlap))
        return tuple(chosen)

    def recent(self, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return the newest items, the newest first. No superseded ones."""
        check_whole("agentMemory.limit", limit, 1)
        newest = sorted(self._serving(), key=lambda item: (-item.created_at.order_key, item.id))
        return tuple(newest[:limit])

    def by_tags(self, tags: Iterable[str], *, limit: int = 10) -> tuple[MemoryItem, ...]:
        """Return items that have all the tags, the most important first. No superseded ones."""
        check_whole("agentMemory.limit", limit, 1)
        wanted = set(tags)
        found = [item for item in self._serving() if wanted <= set(item.tags)]
        return tuple(sorted(found, key=lambda item: (-item.importance, item.id))[:limit])

    def short_term(self) -> tuple[MemoryItem, ...]:
        """Return the items remembered last, the oldest first."""
        return tuple(self._items[each] for each in self._short if each in self._items)

    def working(self) -> tuple[MemoryItem, ...]:
        """Return the working items, the oldest first."""
        return tuple(self._working)

    def audit(self) -> tuple[MemoryItem, ...]:
        """Return every item, superseded ones with their links, in the order of remembering."""
        return tuple(self._items.values())

    def prune(self, policy: PrunePolicy, now: Timestamp) -> int:
        """Remove what the policy lets go; return how many items went. Superseded ones and their successors stay."""
        linked = {item.superseded_by for item in self._items.values() if item.superseded_by is not None}
        loose = [item for item in self._serving() if item.id not in linked]
        doomed: set[str] = set()
        if policy.max_age_days is not None:
            oldest = now.ns - policy.max_age_days * _DAY_NS
            doomed = {
                item.id for item in loose if item.created_at.ns < oldest and item.importance < policy.min_importance
            }
        if policy.max_items is not None:
            excess = len(self._items) - len(doomed) - policy.max_items
            left = sorted(
                (item for item in loose if item.id not in doomed),
                key=lambda item: (self.weights.relevance(item, now), item.id),
            )
            doomed |= {item.id for item in left[: max(0, excess)]}
        for each in doomed:
            del self._items[each], self._words[each]
        return len(doomed)

    def _serving(self) -> Iterable[MemoryItem]:
        return (item for item in self._items.values() if item.superseded_by is None)

    def _touch(self, item_id: str, now: Timestamp) -> None:
        item = self._items[item_id]
        self._items[item_id] = attrs.evolve(item, access_count=item.access_count + 1, last_accessed=now)
