"""How checks are written: the registry, and the ways in which one says that something does not hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Protocol

import attrs

from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.snapshot import SnapshotRequest
from a3s_actors.memory.values import MemoryNamespace, MemoryStatus
from a3s_actors.testing.building import NS

__all__ = [
    "ConformanceFailure",
    "RepositoryCheck",
    "RepositoryFactory",
    "check",
    "check_storage",
    "expect",
    "expect_equal",
    "refused",
    "registered",
    "state_of",
    "unchanged",
]


class ConformanceFailure(AssertionError):
    """A repository does not do what the contract says. The text says what was expected."""


class RepositoryFactory(Protocol):
    """Opens one storage, empty at first: every call gives the same one, so that a second call is a restart."""

    @property
    def persistent(self) -> bool:
        """Whether what was acknowledged is there again after closing and opening."""
        ...

    def __call__(self) -> AbstractAsyncContextManager[MemoryRepository]:
        """Open the storage for the length of a block."""
        ...


@attrs.frozen
class RepositoryCheck:
    """One thing that a repository has to do.

    Attributes:
        name: as an identifier: group, underscore, what.
        description: what holds, as a sentence.
        run: raises when it does not; takes a factory whose storage is empty.
    """

    name: str
    description: str
    run: Callable[[RepositoryFactory], Awaitable[None]] = attrs.field(repr=False)


_checks: list[RepositoryCheck] = []


def check(function: Callable[[MemoryRepository], Awaitable[None]]) -> Callable[[MemoryRepository], Awaitable[None]]:
    """Register a check that needs one open repository."""

    async def run(factory: RepositoryFactory) -> None:
        async with factory() as repository:
            await function(repository)

    _register(function, run)
    return function


def check_storage(
    function: Callable[[RepositoryFactory], Awaitable[None]],
) -> Callable[[RepositoryFactory], Awaitable[None]]:
    """Register a check that opens and closes the storage itself."""
    _register(function, function)
    return function


def _register(function: Callable[..., Any], run: Callable[[RepositoryFactory], Awaitable[None]]) -> None:
    description = (function.__doc__ or "").strip().split("\n")[0]
    _checks.append(RepositoryCheck(function.__name__, description, run))


def expect(condition: object, what: str) -> None:
    """Raise `ConformanceFailure` unless the condition holds."""
    if not condition:
        raise ConformanceFailure(what)


def expect_equal(actual: object, wanted: object, what: str) -> None:
    """Raise `ConformanceFailure` unless both are equal. Values stay out of the text: they may be large."""
    if actual != wanted:
        raise ConformanceFailure(f"{what}: not what was expected ({type(actual).__name__})")


@contextmanager
def refused(kind: type[MemoryRepositoryError], **fields: object) -> Iterator[None]:
    """Expect the block to raise exactly that error, with those fields."""
    try:
        yield
    except MemoryRepositoryError as error:
        expect(type(error) is kind, f"expected {kind.__name__}, got {type(error).__name__}: {error}")
        for name, wanted in fields.items():
            expect_equal(getattr(error, name), wanted, f"{kind.__name__}.{name}")
        return
    raise ConformanceFailure(f"expected {kind.__name__}, nothing was refused")


@asynccontextmanager
async def unchanged(repository: MemoryRepository, *namespaces: MemoryNamespace) -> AsyncIterator[None]:
    """Expect the block to change nothing: memories, histories, change tokens, audit records."""
    watched = namespaces or (NS,)
    before = [await state_of(repository, each) for each in watched]
    yield
    for each, earlier in zip(watched, before, strict=True):
        expect_equal(await state_of(repository, each), earlier, "the state of a namespace that nothing should change")


async def state_of(repository: MemoryRepository, namespace: MemoryNamespace) -> tuple[object, ...]:
    """Return what identifies a namespace's whole state."""
    request = SnapshotRequest(namespace=namespace, statuses=frozenset(MemoryStatus))
    view = await repository.snapshot_namespace(request)
    view.verify_deep(request)
    events = await repository.access_events(namespace, limit=1000)
    return view.digest, view.node_count, await repository.namespace_change_token(namespace), events.records


def registered() -> tuple[RepositoryCheck, ...]:
    """Return every check that was registered so far."""
    return tuple(_checks)
