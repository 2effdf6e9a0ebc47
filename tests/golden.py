"""The golden files of the a3s-memory crate, and a runner that asks a repository everything they hold.

They lie beside the project, in `shared/golden`, or where the environment variable A3S_SHARED says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a3s_actors.memory import (
    AccessEvent,
    InvalidInput,
    LimitExceeded,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryQuery,
    MemoryRepository,
    MemoryRepositoryError,
    MemoryStatus,
    SnapshotRequest,
)
from a3s_actors.memory.codec import float_json, node_json, result_json
from a3s_actors.memory.decoding import structure

_DEFAULT = Path(__file__).resolve().parents[1].parent / "shared"
GOLDEN = Path(os.environ.get("A3S_SHARED", _DEFAULT)) / "golden"

needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden files beside the project; set A3S_SHARED")


def golden_lines(name: str) -> Iterator[Any]:
    """Parse a golden file of one JSON value a line."""
    with (GOLDEN / name).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def summary() -> Any:
    """Return what `summary.json` says about the journal that the operations leave."""
    return json.loads((GOLDEN / "summary.json").read_text(encoding="utf-8"))


async def check_final_state(repository: MemoryRepository) -> None:
    """Compare snapshots and change tokens with those that the crate had in the end."""
    facts = summary()
    for wanted in facts["finalSnapshots"]:
        request = SnapshotRequest(
            namespace=structure(wanted["namespace"], MemoryNamespace), statuses=map(MemoryStatus, wanted["statuses"])
        )
        snapshot = await repository.snapshot_namespace(request)
        snapshot.verify_deep(request)
        answer = (snapshot.digest, snapshot.byte_count, snapshot.node_count)
        assert answer == (wanted["digest"], wanted["byteCount"], wanted["nodes"]), wanted
    tokens = {}
    for namespace in await repository.namespaces():
        name = "/".join((namespace.tenant_id, namespace.principal_id, namespace.scope_id))
        token = await repository.namespace_change_token(namespace)
        assert token is not None
        tokens[name] = token.sequence
    assert tokens == facts["changeTokens"]


async def run_golden(repository: MemoryRepository, reopen: Callable[[], Awaitable[MemoryRepository]]) -> int:
    """Do every golden operation on an empty repository and compare every answer.

    Args:
        repository: an empty, open repository.
        reopen: closes it, where the backend is durable, and returns it opened again.

    Returns:
        The number of operations that were compared.
    """
    number = 0
    operations = (GOLDEN / "ops.jsonl").read_bytes().splitlines()
    for number, (line, expected) in enumerate(zip(operations, golden_lines("expected.jsonl"), strict=True), start=1):
        operation = json.loads(line)
        if operation["op"] == "reopen":
            repository = await reopen()
            assert expected == {"ok": "reopened"}
            continue
        where = f"operation {number}: {operation['op']}"
        try:
            answer: object = {"ok": await _ask(repository, operation)}
        except MemoryRepositoryError as error:
            answer = error
        if "ok" in expected:
            assert answer == expected, where
        elif "err" in expected:
            assert isinstance(answer, MemoryRepositoryError), where
            _check_error(answer, expected["err"], where)
        else:
            # The crate could not even parse it.
            assert isinstance(answer, InvalidInput), where
    return number


def _check_error(error: MemoryRepositoryError, expected: dict[str, Any], where: str) -> None:
    assert type(error).__name__ == expected["variant"], (where, error)
    # Names of fields and resources are each implementation's own; the figures are not.
    figures = {name: value for name, value in expected.items() if name not in {"variant", "field", "resource"}}
    assert {name: getattr(error, name) for name in figures} == figures, (where, error)
    if isinstance(error, InvalidInput):
        assert error.field, where
    if isinstance(error, LimitExceeded):
        assert error.resource, where


async def _ask(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    """Do one operation and return its answer as parsed JSON in the crate's shape."""
    return await _ASK[operation["op"]](repository, operation)


async def _apply(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    data = operation["changeSet"]
    if data["idempotencyKey"] in _LAX_INPUTS:
        # We are strict where the crate's parser is not; what it understood is then done all the same.
        with pytest.raises(InvalidInput):
            structure(data, MemoryChangeSet)
        data = _as_the_crate_reads(data)
    return json.loads(result_json(await repository.apply(structure(data, MemoryChangeSet))))


_LAX_INPUTS = {"p3", "p4"}  # unknown fields; lists in the place of objects


def _as_the_crate_reads(data: dict[str, Any]) -> dict[str, Any]:
    """Drop unknown fields and turn positional lists into objects."""

    def known(value: dict[str, Any]) -> dict[str, Any]:
        return {name: item for name, item in value.items() if name not in {"extra", "more", "unknown"}}

    def named(value: Any, *names: str) -> dict[str, Any]:
        return dict(zip(names, value, strict=True)) if isinstance(value, list) else known(value)

    data = known(data)
    data["namespace"] = named(data["namespace"], "tenantId", "principalId", "scopeId")
    data["operations"] = [
        known(operation)
        | {"evidence": [named(item, "uri", "digest", "kind", "occurredAt") for item in operation["evidence"]]}
        for operation in data["operations"]
    ]
    return data


async def _admission(repository: MemoryRepository, operation: dict[str, Any]) -> None:
    await repository.record_admission(structure(operation["event"], AccessEvent))


async def _use(repository: MemoryRepository, operation: dict[str, Any]) -> None:
    await repository.record_use(structure(operation["event"], AccessEvent))


async def _get(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    namespace = structure(operation["namespace"], MemoryNamespace)
    node = await repository.get(namespace, operation["nodeId"])
    return None if node is None else json.loads(node_json(node))


async def _query(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    query = operation["query"]
    request = MemoryQuery(
        namespace=structure(query["namespace"], MemoryNamespace),
        text=query.get("text"),
        kinds=map(MemoryKind, query["kinds"]),
        statuses=map(MemoryStatus, query["statuses"]),
        limit=query["limit"],
    )
    hits = []
    for hit in await repository.query(request):
        # The crate's hits carry the history, ours the head alone.
        whole = await repository.get(request.namespace, hit.node.id)
        assert whole is not None
        assert whole.head == hit.node
        # The crate's score is a pair, of which this profile fills both the same.
        score = json.loads(float_json(hit.score))
        hits.append({"node": json.loads(node_json(whole)), "score": {"lexical": score, "total": score}})
    return {"hits": hits}


async def _snapshot(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    wanted = operation["request"]
    request = SnapshotRequest(
        namespace=structure(wanted["namespace"], MemoryNamespace),
        statuses=map(MemoryStatus, wanted["statuses"]),
        max_nodes=wanted["maxNodes"],
        max_bytes=wanted["maxBytes"],
    )
    snapshot = await repository.snapshot_namespace(request)
    snapshot.verify_deep(request)
    answer: dict[str, Any] = {
        "profile": snapshot.profile,
        "digest": snapshot.digest,
        "byteCount": snapshot.byte_count,
    }
    if operation.get("withNodes"):
        namespace = snapshot.namespace
        answer |= {
            "namespace": {
                "tenantId": namespace.tenant_id,
                "principalId": namespace.principal_id,
                "scopeId": namespace.scope_id,
            },
            "statuses": [status.value for status in MemoryStatus if status in snapshot.statuses],
            "nodes": [json.loads(data) for data in snapshot.node_bytes],
        }
    else:
        answer |= {"ids": [node.id for node in snapshot.nodes()], "nodeCount": snapshot.node_count}
    return answer


async def _token(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    token = await repository.namespace_change_token(structure(operation["namespace"], MemoryNamespace))
    assert token is not None
    return {"profile": token.profile, "sequence": token.sequence}


async def _usage(repository: MemoryRepository, operation: dict[str, Any]) -> Any:
    namespace = structure(operation["namespace"], MemoryNamespace)
    usage = await repository.usage_summary(namespace, operation["nodeId"])
    return {"admissions": usage.admissions, "uses": usage.uses}


_ASK: dict[str, Callable[[MemoryRepository, dict[str, Any]], Awaitable[Any]]] = {
    "apply": _apply,
    "admission": _admission,
    "use": _use,
    "get": _get,
    "query": _query,
    "snapshot": _snapshot,
    "token": _token,
    "usage": _usage,
}
