"""Requests and answers of the pure reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory._checks import as_frozenset, check_text, check_whole, instance_of, whole
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.lexical import has_alphanumeric
from a3s_actors.memory.values import (
    AccessEvent,
    AccessKind,
    Labels,
    MemoryKind,
    MemoryNamespace,
    MemoryStatus,
    NodeHead,
    NodeRevision,
    to_labels,
)

__all__ = [
    "CHANGE_TOKEN_PROFILE",
    "AccessCursor",
    "AccessPage",
    "AccessRecord",
    "HistoryPage",
    "MemoryHit",
    "MemoryQuery",
    "NamespaceChangeToken",
    "NodePage",
    "ScanRequest",
]

CHANGE_TOKEN_PROFILE = "a3s.memory.namespace-change-token.sequence.v1"  # noqa: S105 - a profile's name


def _query_text(_instance: Any, _attribute: Any, value: object) -> None:
    if value is None:
        return
    # No limit on the query's length: it is never stored, and matching is linear in it.
    check_text("query.text", value, None)
    assert isinstance(value, str)
    if not has_alphanumeric(value):
        raise InvalidInput("query.text", "needs at least one letter or digit; leave text out to list")


_to_statuses = as_frozenset("statuses", MemoryStatus)
_to_kinds = as_frozenset("kinds", MemoryKind)


def to_statuses(value: Iterable[MemoryStatus]) -> frozenset[MemoryStatus]:
    """Return statuses as a set. Raises InvalidInput for anything else."""
    return _to_statuses(value)


def to_kinds(value: Iterable[MemoryKind]) -> frozenset[MemoryKind]:
    """Return kinds as a set. Raises InvalidInput for anything else."""
    return _to_kinds(value)


def some_status(field: str) -> Any:
    """Return an attrs validator that refuses an empty set of statuses."""

    def check(_instance: Any, _attribute: Any, value: frozenset[MemoryStatus]) -> None:
        if not value:
            raise InvalidInput(field, "must name at least one status")

    return check


@attrs.frozen(kw_only=True)
class MemoryQuery:
    """A lexical query, or with `text=None` a listing by time.

    Args:
        namespace: the one exact namespace that is read.
        text: needs at least one alphanumeric character; None lists.
        kinds: empty means all.
        statuses: by default active only.
        limit: 1 to 100 hits, by default 20.

    Raises:
        InvalidInput: a field is malformed; an empty text is no listing.
        LimitExceeded: limit above 100.
    """

    namespace: MemoryNamespace = attrs.field(validator=instance_of("query.namespace", MemoryNamespace))
    text: str | None = attrs.field(default=None, repr=False, validator=_query_text)
    kinds: frozenset[MemoryKind] = attrs.field(factory=frozenset, converter=to_kinds)
    statuses: frozenset[MemoryStatus] = attrs.field(
        default=frozenset({MemoryStatus.ACTIVE}), converter=to_statuses, validator=some_status("query.statuses")
    )
    limit: int = attrs.field(
        default=limits.DEFAULT_QUERY_LIMIT,
        validator=whole("query.limit", 1, limits.MAX_QUERY_LIMIT, resource="query limit"),
    )


@attrs.frozen
class MemoryHit:
    """One query result: the node without its history, and its lexical score.

    The score is 0 to 1 at float32 precision; a listing (a query without text) scores every node 0.
    """

    node: NodeHead
    score: float


@attrs.frozen(kw_only=True)
class ScanRequest:
    """A page of a namespace's nodes in id order.

    Args:
        namespace: the one exact namespace that is read.
        statuses: by default every status.
        kinds: empty means all.
        labels: pairs that a node must all carry.
        after: the last id of the page before, None for the first page.
        limit: 1 to 1000 nodes, by default 100.

    Raises:
        InvalidInput, LimitExceeded: a field is malformed or too large.
    """

    namespace: MemoryNamespace = attrs.field(validator=instance_of("scan.namespace", MemoryNamespace))
    statuses: frozenset[MemoryStatus] = attrs.field(
        default=frozenset(MemoryStatus), converter=to_statuses, validator=some_status("scan.statuses")
    )
    kinds: frozenset[MemoryKind] = attrs.field(factory=frozenset, converter=to_kinds)
    labels: Labels = attrs.field(factory=Labels, converter=to_labels)
    after: str | None = attrs.field(default=None)
    limit: int = attrs.field(default=limits.DEFAULT_PAGE_LIMIT, validator=whole("scan.limit", 1, limits.MAX_PAGE_LIMIT))

    @after.validator
    def _cursor(self, _attribute: Any, value: object) -> None:
        if value is not None:
            check_text("scan.after", value, limits.MAX_IDENTIFIER_BYTES)

    def accepts(self, head: NodeHead) -> bool:
        """Whether a node passes the filters (namespace and cursor are the backend's part)."""
        return (
            head.status in self.statuses
            and (not self.kinds or head.kind in self.kinds)
            and all(head.labels.get(key) == value for key, value in self.labels.items())
        )


@attrs.frozen(kw_only=True)
class NodePage:
    """Nodes in id order, and the cursor of the next page, None on the last."""

    nodes: tuple[NodeHead, ...]
    next_after: str | None


@attrs.frozen(kw_only=True)
class HistoryPage:
    """Revisions of one node from old to new, the current one last; `next_after` is None on the last page."""

    revisions: tuple[NodeRevision, ...]
    next_after: int | None


@attrs.frozen(kw_only=True)
class AccessRecord:
    """One access event as stored, with its kind and its place in the repository's order of arrival."""

    kind: AccessKind
    event: AccessEvent
    place: int


AccessCursor = int


@attrs.frozen(kw_only=True)
class AccessPage:
    """Access events in the order of arrival, and the cursor of the next page, None on the last."""

    records: tuple[AccessRecord, ...]
    next_after: AccessCursor | None


@attrs.frozen(order=True)
class NamespaceChangeToken:
    """Counts the novel change sets of a namespace. Equal tokens of one repository mean equal content.

    Args:
        sequence: 0 for a namespace never written; never falls, never repeats.
        profile: names the scheme.
    """

    sequence: int = attrs.field(validator=whole("changeToken.sequence", 0))
    profile: str = CHANGE_TOKEN_PROFILE


def check_node_id(value: object) -> str:
    """Refuse what cannot be a node id; for the reads that take one bare."""
    check_text("nodeId", value, limits.MAX_IDENTIFIER_BYTES)
    assert isinstance(value, str)
    return value


def check_type(field: str, value: object, kind: type) -> None:
    """Refuse an argument of another type with an error that names the field.

    Raises:
        InvalidInput: it is not a `kind`.
    """
    if not isinstance(value, kind):
        raise InvalidInput(field, f"must be a {kind.__name__}, not {type(value).__name__}")


def check_after(field: str, value: object) -> int:
    """Refuse a cursor that is no whole number from 0."""
    check_whole(field, value, 0)
    assert isinstance(value, int)
    return value


def check_node_ids(values: Iterable[str]) -> list[str]:
    """Refuse what is no collection of node ids; a text alone is none."""
    if isinstance(values, str | bytes):
        raise InvalidInput("nodeIds", "must be a list of ids, not one text")
    try:
        ids = list(values)
    except TypeError:
        raise InvalidInput("nodeIds", "must be a list of ids") from None
    return [check_node_id(each) for each in ids]


def check_page_limit(field: str, value: object) -> int:
    """Refuse a page size outside 1 to 1000."""
    check_whole(field, value, 1, limits.MAX_PAGE_LIMIT)
    assert isinstance(value, int)
    return value
