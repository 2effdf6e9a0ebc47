"""A seeded driver: random operations on a repository and on the reference state machine, compared at every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.operations import MemoryChangeSet, MemoryOperation
from a3s_actors.memory.reads import MemoryQuery, ScanRequest
from a3s_actors.memory.reference import ReferenceState
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.snapshot import SnapshotRequest
from a3s_actors.memory.values import AccessEvent, AccessKind, MemoryKind, MemoryNamespace, MemoryStatus, RelationKind
from a3s_actors.testing._registry import ConformanceFailure, RepositoryFactory, expect_equal
from a3s_actors.testing.building import (
    NS,
    OTHER,
    access,
    activate,
    add,
    change,
    corroborate,
    create,
    purge,
    remove,
    revise,
    set_status,
)

__all__ = ["ModelDriver", "run_model"]

_WORDS = ["deploy", "tuesday", "thursday", "rollback", "数据库", "备份", "每天", "incident", "canary", "Straße", "café"]
_IDS = [f"n{number}" for number in range(12)]
_SPACES = (NS, OTHER)


class ModelDriver:
    """Makes random operations and checks that the repository answers as the reference does.

    Args:
        chance: the source of every choice; the same seed makes the same operations.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.reference = ReferenceState()
        self.second = 0
        self.applied: list[MemoryChangeSet] = []
        self.events: list[tuple[AccessKind, AccessEvent]] = []

    # -- making operations ---------------------------------------------------------------------------------------------

    def change_set(self) -> MemoryChangeSet:
        """Make a change set; about half of them break some rule."""
        if self.applied and self.chance.random() < 0.1:
            return self.chance.choice(self.applied)  # a replay
        space = self.chance.choice(_SPACES)
        self.second += self.chance.choice((0, 1, 1, 2))
        operations: list[MemoryOperation] = []
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            operations += self._operations(space)
        key = f"k{self.chance.randrange(10_000)}"
        return change(key, *operations, second=self.second, namespace=space)

    def _text(self) -> str:
        return " ".join(self.chance.choices(_WORDS, k=self.chance.randint(1, 6)))

    def _operations(self, space: MemoryNamespace) -> list[MemoryOperation]:
        node_id, other = self.chance.choice(_IDS), self.chance.choice(_IDS)
        revision, other_revision = self._revision(space, node_id), self._revision(space, other)
        uri = f"u://{self.chance.randrange(6)}"
        kind = self.chance.choice(list(RelationKind))
        match self.chance.randrange(8):
            case 0 | 1:
                status = self.chance.choice((MemoryStatus.CANDIDATE, MemoryStatus.ACTIVE))
                memory = self.chance.choice(list(MemoryKind))
                return [create(node_id, self._text(), status=status, kind=memory, namespace=space, second=self.second)]
            case 2:
                return [activate(node_id, revision, uri)]
            case 3:
                return [corroborate(node_id, revision, uri)]
            case 4:
                return [revise(node_id, self._text(), revision, uri=uri)]
            case 5:
                return [add(node_id, kind, other, revision), add(other, kind.inverse, node_id, other_revision)]
            case 6:
                return [remove(node_id, kind, other, revision), remove(other, kind.inverse, node_id, other_revision)]
            case _:
                status = self.chance.choice(list(MemoryStatus))
                steps: list[MemoryOperation] = []
                if status is MemoryStatus.SUPERSEDED:
                    steps = [
                        add(node_id, RelationKind.SUPERSEDED_BY, other, revision),
                        add(other, RelationKind.SUPERSEDES, node_id, other_revision),
                    ]
                return [*steps, set_status(node_id, status, revision + (1 if steps else 0))]

    def _revision(self, space: MemoryNamespace, node_id: str) -> int:
        node = self.reference.get(space, node_id)
        wrong = self.chance.random() < 0.05
        return (node.revision if node is not None else 1) + wrong

    def event(self) -> tuple[AccessKind, AccessEvent]:
        """Make an access event; some break a rule or repeat an earlier one."""
        if self.events and self.chance.random() < 0.2:
            return self.chance.choice(self.events)
        space, node_id = self.chance.choice(_SPACES), self.chance.choice(_IDS)
        revision = max(1, self._revision(space, node_id) - self.chance.choice((0, 0, 1)))
        event = access(f"e{self.chance.randrange(1000)}", node_id, revision, second=self.second, namespace=space)
        return self.chance.choice(list(AccessKind)), event

    # -- comparing -----------------------------------------------------------------------------------------------------

    async def apply(self, repository: MemoryRepository, change_set: MemoryChangeSet) -> None:
        """Apply a change set to both and compare results or errors."""
        wanted = _outcome(lambda: self.reference.apply(change_set))
        actual = await _async_outcome(repository.apply(change_set))
        _compare(actual, wanted, f"apply {change_set.idempotency_key}")
        if not isinstance(wanted, MemoryRepositoryError):
            self.applied.append(change_set)

    async def record(self, repository: MemoryRepository, kind: AccessKind, event: AccessEvent) -> None:
        """Record an access event in both and compare."""
        wanted = _outcome(lambda: self.reference.record(kind, event))
        record = repository.record_admission if kind is AccessKind.ADMISSION else repository.record_use
        _compare(await _async_outcome(record(event)), wanted, f"{kind.value} {event.id}")
        if not isinstance(wanted, MemoryRepositoryError):
            self.events.append((kind, event))

    async def purge(self, repository: MemoryRepository, node_id: str, space: MemoryNamespace) -> None:
        """Purge a node in both and compare what the receipts count; digests and marks differ by each storage's key."""
        wanted_purge = purge(f"p{self.chance.randrange(10_000)}", node_id, second=self.second, namespace=space)
        node = self.reference.get(space, node_id)
        if node is not None and node.relations:
            return  # marks are keyed: the states would differ in them
        wanted = _outcome(lambda: self.reference.purge(wanted_purge))
        actual = await _async_outcome(repository.purge(wanted_purge))
        if isinstance(wanted, MemoryRepositoryError):
            _compare(actual, wanted, "purge")
            return
        for name in ("nodes", "revisions", "access_events", "neighbours", "sequence"):
            expect_equal(getattr(actual, name, None), getattr(wanted, name), f"purge receipt {name}")
        self.applied = [each for each in self.applied if not _touches(each, space, node_id)]
        self.events = [each for each in self.events if (each[1].namespace, each[1].node_id) != (space, node_id)]

    async def compare_state(self, repository: MemoryRepository) -> None:
        """Compare everything that can be read."""
        for space in _SPACES:
            request = SnapshotRequest(namespace=space, statuses=frozenset(MemoryStatus))
            view, wanted = await repository.snapshot_namespace(request), self.reference.snapshot(request)
            expect_equal(view.digest, wanted.digest, "the snapshot's digest")
            view.verify_deep(request)
            token = await repository.namespace_change_token(space)
            expect_equal(token, self.reference.change_token(space), "the change token")
            scan = ScanRequest(namespace=space)
            expect_equal((await repository.scan(scan)).nodes, self.reference.scan(scan).nodes, "a scan")
            for node_id in _IDS:
                node = self.reference.get(space, node_id)
                expect_equal(await repository.get(space, node_id), node, "a node")
                if node is not None:
                    usage = await repository.usage_summary(space, node_id)
                    expect_equal(usage, self.reference.usage_summary(space, node_id), "a node's counts")
            events = (await repository.access_events(space, limit=1000)).records
            wanted_events = self.reference.access_events(space, None, 0, 1000).records
            expect_equal(
                [(each.kind, each.event) for each in events],
                [(each.kind, each.event) for each in wanted_events],
                "the access events",
            )

    async def compare_query(self, repository: MemoryRepository) -> None:
        """Compare a random query."""
        statuses = self.chance.sample(list(MemoryStatus), self.chance.randint(1, 5))
        text = None if self.chance.random() < 0.2 else self._text()
        query = MemoryQuery(
            namespace=self.chance.choice(_SPACES), text=text, statuses=statuses, limit=self.chance.randint(1, 20)
        )
        expect_equal(await repository.query(query), self.reference.query(query), "a query's hits")


def _touches(change_set: MemoryChangeSet, space: MemoryNamespace, node_id: str) -> bool:
    ids = {getattr(each, "node_id", None) or each.node.id for each in change_set.operations}  # type: ignore[union-attr]
    return change_set.namespace == space and node_id in ids


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except MemoryRepositoryError as error:
        return error


async def _async_outcome(call: Any) -> Any:
    try:
        return await call
    except MemoryRepositoryError as error:
        return error


def _compare(actual: Any, wanted: Any, what: str) -> None:
    if isinstance(actual, MemoryRepositoryError) and isinstance(wanted, MemoryRepositoryError):
        expect_equal((type(actual), actual.fields()), (type(wanted), wanted.fields()), f"{what}: the refusal")
    elif isinstance(actual, MemoryRepositoryError):
        raise ConformanceFailure(f"{what}: refused with {type(actual).__name__} ({actual}); the reference accepts it")
    elif isinstance(wanted, MemoryRepositoryError):
        raise ConformanceFailure(f"{what}: accepted; the reference refuses it with {type(wanted).__name__}")
    else:
        expect_equal(actual, wanted, what)


async def run_model(factory: RepositoryFactory, seed: int, steps: int = 200) -> None:
    """Drive a repository and the reference side by side, with restarts where it is persistent.

    Args:
        factory: opens the storage, empty at first.
        seed: the same seed makes the same steps.
        steps: how many operations.

    Raises:
        ConformanceFailure: an answer or a state differs; the seed is in a note of the error.
    """
    driver = ModelDriver(random.Random(seed))  # noqa: S311 - reproducible choices
    left = steps
    try:
        while left > 0:
            async with factory() as repository:
                for _ in range(min(left, 60) if factory.persistent else left):
                    left -= 1
                    await _step(driver, repository)
                await driver.compare_state(repository)
    except ConformanceFailure as error:
        error.add_note(f"seed {seed}, {steps - left} steps done")
        raise


async def _step(driver: ModelDriver, repository: MemoryRepository) -> None:
    choice = driver.chance.random()
    if choice < 0.6:
        await driver.apply(repository, driver.change_set())
    elif choice < 0.8:
        await driver.record(repository, *driver.event())
    elif choice < 0.83:
        await driver.purge(repository, driver.chance.choice(_IDS), driver.chance.choice(_SPACES))
    else:
        await driver.compare_query(repository)
