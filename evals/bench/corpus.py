"""Texts that look like prose to an index: word frequencies by Zipf's law, about a hundred characters each."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterator

from a3s_actors.memory import (
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryStatus,
    Timestamp,
)

__all__ = ["NAMESPACE", "change_sets", "texts"]

NAMESPACE = MemoryNamespace("bench", "bench", "bench")
AT = Timestamp.parse("2026-01-02T03:04:05Z")
_VOCABULARY = 60_000


def texts(count: int, seed: int = 1) -> Iterator[str]:
    """Yield `count` texts of 17 words; the same seed gives the same texts."""
    chance = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(_VOCABULARY)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, _VOCABULARY + 1)))
    for _ in range(count):
        yield " ".join(words[bisect.bisect_left(weights, chance.random() * weights[-1])] for _ in range(17))


def change_sets(count: int, size: int = 100, seed: int = 1) -> Iterator[MemoryChangeSet]:
    """Yield change sets of `size` creates each that make `count` active nodes."""
    evidence = EvidenceRef(uri="bench://e", digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)
    numbered = enumerate(texts(count, seed))
    for number in itertools.count():
        drafts = [
            MemoryNodeDraft(
                id=f"node-{place:07}",
                namespace=NAMESPACE,
                kind=MemoryKind.SEMANTIC,
                status=MemoryStatus.ACTIVE,
                content=text,
                evidence=[evidence],
                created_at=Timestamp(AT.ns + place * 1_000_000),
            )
            for place, text in itertools.islice(numbered, size)
        ]
        if not drafts:
            return
        yield MemoryChangeSet(
            idempotency_key=f"bench-{seed}-{number}",
            namespace=NAMESPACE,
            occurred_at=Timestamp(AT.ns + count * 1_000_000),
            operations=tuple(map(Create, drafts)),
        )
