"""From options to kernel values, and from a short id to the memory it names."""

from __future__ import annotations

import enum
import secrets
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import attrs
import typer

from a3s_actors.cli.reasons import ReasonStore
from a3s_actors.cli.running import BadInput, Refused, Where
from a3s_actors.memory.errors import InvalidInput, MemoryRepositoryError, NodeNotFound
from a3s_actors.memory.reads import ScanRequest
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, MemoryKind, MemoryNamespace, MemoryStatus, NodeHead

if TYPE_CHECKING:
    from a3s_actors.memory.repository import MemoryRepository

__all__ = [
    "At",
    "Because",
    "Decision",
    "Evidence",
    "Given",
    "Key",
    "Kinds",
    "LabelPairs",
    "Revision",
    "Statuses",
    "choice",
    "choices",
    "decision",
    "every",
    "find",
    "labels_of",
    "moment",
]

M = TypeVar("M", bound=enum.Enum)
_MIN_PREFIX = 4
_PAGE = 1000

Evidence = Annotated[
    tuple[str, str, str] | None,
    typer.Option("--evidence", metavar="URI DIGEST KIND", help="Evidence: a reference, its digest and its kind."),
]
Because = Annotated[
    str | None,
    typer.Option("--because", metavar="TEXT", help="Manual evidence: why; the text is kept in FILE.evidence.db."),
]
At = Annotated[str | None, typer.Option("--at", metavar="TIME", help="When it happened (RFC 3339); default: now.")]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Idempotency key, to repeat a command safely with --at and --revision."),
]
Revision = Annotated[
    int | None, typer.Option("--revision", metavar="N", help="Refuse unless this is the current revision.")
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="episodic, semantic or procedural; may be repeated.")]
Statuses = Annotated[
    list[str] | None,
    typer.Option("--status", help="candidate, active, superseded, conflicted or tombstoned; may be repeated."),
]
LabelPairs = Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label; may be repeated.")]


def choice(option: str, kind: type[M], value: str) -> M:
    """Return the member of that value. Raises BadInput naming the option and its values."""
    for member in kind:
        if member.value == value:
            return member
    raise BadInput(f"{option}: must be one of {', '.join(str(member.value) for member in kind)}")


def choices(option: str, kind: type[M], values: Sequence[str] | None) -> frozenset[M]:
    """Return the members of those values, none for no option. Raises BadInput."""
    return frozenset(choice(option, kind, value) for value in values or ())


def labels_of(pairs: Iterable[str] | None) -> dict[str, str]:
    """Return labels given as KEY=VALUE. Raises BadInput."""
    labels: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput("--label: must be KEY=VALUE")
        if labels.setdefault(key, value) != value:
            raise BadInput(f"--label: {key[:64]} is given twice")
    return labels


def moment(option: str, text: str | None) -> Timestamp:
    """Return a time given as RFC 3339, now for none. Raises BadInput."""
    if text is None:
        return Timestamp.now()
    try:
        return Timestamp.of(text)
    except InvalidInput as error:
        raise BadInput(f"{option}: {error.message}") from error


async def find(repository: MemoryRepository, namespace: MemoryNamespace, name: str) -> NodeHead:
    """Return the memory of an id, or of the only id that begins with `name` (at least four characters).

    Raises:
        NodeNotFound: there is none.
        Refused: several ids begin so.
        InvalidInput: `name` cannot be an id.
    """
    exact = await repository.get_heads(namespace, [name])
    if exact:
        return exact[name]
    if len(name) >= _MIN_PREFIX:
        page = await repository.scan(ScanRequest(namespace=namespace, after=name, limit=2))
        found = [head for head in page.nodes if head.id.startswith(name)]
        if len(found) > 1:
            raise Refused(f"{name}: several ids begin so; give more of it")
        if found:
            return found[0]
    raise NodeNotFound(name)


async def every(repository: MemoryRepository, request: ScanRequest) -> AsyncGenerator[NodeHead, None]:
    """Yield all memories of a scan, page by page."""
    cursor = request.after
    while True:
        page = await repository.scan(attrs.evolve(request, after=cursor, limit=_PAGE))
        for head in page.nodes:
            yield head
        if page.next_after is None:
            return
        cursor = page.next_after


@attrs.frozen
class Decision:
    """What a changing command was given: when, under which key, and with which evidence."""

    at: Timestamp
    key: str
    evidence: EvidenceRef

    @property
    def items(self) -> tuple[EvidenceRef, ...]:
        """The evidence as a tuple."""
        return (self.evidence,)


@attrs.frozen
class Given:
    """What a changing command was given besides its memories, as options say it."""

    evidence: tuple[str, str, str] | None
    because: str | None
    at: str | None
    key: str | None
    json: bool = False


@contextmanager
def decision(where: Where, given: Given) -> Iterator[Decision]:
    """Give the decision that options describe; a reason's text is stored first, and removed if the block refuses.

    Raises:
        BadInput: neither or both of `--evidence` and `--because`, or a malformed option.
        InvalidInput, LimitExceeded: a part of the evidence is malformed.
        Persistence: the reason cannot be stored.
    """
    occurred_at = moment("--at", given.at)
    name = given.key if given.key is not None else f"cli-{secrets.token_hex(16)}"
    if (given.evidence is None) == (given.because is None):
        raise BadInput("give either --evidence URI DIGEST KIND or --because TEXT")
    if given.evidence is not None:
        uri, digest, kind = given.evidence
        chosen = choice("--evidence KIND", EvidenceKind, kind)
        yield Decision(occurred_at, name, EvidenceRef(uri=uri, digest=digest, kind=chosen, occurred_at=occurred_at))
        return
    assert given.because is not None
    store = ReasonStore(where.existing())
    reason = store.keep(given.because, where.namespace, name, occurred_at)
    try:
        yield Decision(occurred_at, name, reason)
    except (MemoryRepositoryError, Refused):
        if given.key is None:  # under a key of the caller's an earlier, successful command may have stored it
            store.forget(reason)
        raise


def kinds_of(values: Sequence[str] | None) -> frozenset[MemoryKind]:
    """Return the kinds given as `--kind`. Raises BadInput."""
    return choices("--kind", MemoryKind, values)


def statuses_of(values: Sequence[str] | None) -> frozenset[MemoryStatus]:
    """Return the statuses given as `--status`. Raises BadInput."""
    return choices("--status", MemoryStatus, values)
