"""Disk faults under a scripted workload: whatever fails, nothing acknowledged is lost and nothing is half there.

Each run copies a prepared file, lets the k-th operation of one sort go wrong, and afterwards opens the file on a good
disk. Then: the file verifies; every acknowledged result is there; the whole workload done again under the same keys
gives, call by call, the results of a run without faults.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from a3s_actors.memory import (
    AccessEvent,
    AddRelation,
    ChangeSetResult,
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryOperation,
    MemoryPurge,
    MemoryRelation,
    MemoryRepositoryError,
    MemoryStatus,
    PurgeReceipt,
    RelationKind,
    Revise,
    RevisionMode,
    SetStatus,
    SnapshotRequest,
    Timestamp,
)
from a3s_backends.sqlite import SqliteMemoryRepository, open_sqlite_repository
from a3s_backends.sqlite.faults import Fault, FaultyDisk, Manner, Operation, install_faulty_disk
from evals.faults.report import FaultReport

__all__ = ["Answers", "Reference", "check_afterwards", "fresh", "make_reference", "prepare", "run", "work"]

NS: Final = MemoryNamespace("acme", "alice", "faults")
FOREIGN: Final = MemoryNamespace("acme", "alice", "faults2")
AT: Final = Timestamp.of("2026-01-01T00:00:00Z")
_SECONDS: Final = 30
_COMBINATIONS: Final[tuple[tuple[Operation, Manner, bool], ...]] = (
    ("write", "fail", False),
    ("write", "fail", True),
    ("write", "full", False),
    ("write", "full", True),
    ("write", "tear", False),
    ("write", "cut", False),
    ("sync", "fail", False),
    ("sync", "fail", True),
    ("sync", "cut", False),
    ("truncate", "fail", False),
    ("truncate", "cut", False),
    ("read", "fail", False),
    ("read", "fail", True),
    ("read", "short", False),
)


def _evidence(uri: str) -> EvidenceRef:
    return EvidenceRef(uri=uri, digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)


def _draft(node_id: str, *relations: MemoryRelation, namespace: MemoryNamespace = NS) -> MemoryNodeDraft:
    return MemoryNodeDraft(
        id=node_id,
        namespace=namespace,
        kind=MemoryKind.SEMANTIC,
        status=MemoryStatus.ACTIVE,
        content=f"the memory {node_id} says something about faults 故障 " * 12,
        evidence=[_evidence(f"source://{node_id}")],
        relations=relations,
        created_at=AT,
    )


def _change(key: str, *operations: MemoryOperation, namespace: MemoryNamespace = NS) -> MemoryChangeSet:
    return MemoryChangeSet(idempotency_key=key, namespace=namespace, occurred_at=AT, operations=operations)


def _relation(kind: RelationKind, target: str) -> MemoryRelation:
    return MemoryRelation(kind, target)


@attrs.frozen
class _Step:
    """One call of the workload. Steps of one `group` run at the same time."""

    name: str
    group: int
    call: Callable[[SqliteMemoryRepository], Awaitable[Any]]


def _workload() -> list[_Step]:
    steps: list[_Step] = []

    def apply(group: int, change_set: MemoryChangeSet) -> None:
        steps.append(_Step(f"apply {change_set.idempotency_key}", group, lambda opened: opened.apply(change_set)))

    related = RelationKind.RELATED_TO
    apply(
        0, _change("pair", Create(_draft("a", _relation(related, "b"))), Create(_draft("b", _relation(related, "a"))))
    )
    apply(1, _change("old", Create(_draft("old")), Create(_draft("new"))))
    revise = Revise(
        "a", expected_revision=1, content="corrected", mode=RevisionMode.CORRECTION, evidence=[_evidence("r://1")]
    )
    apply(2, _change("revise", revise))
    apply(
        3,
        _change(
            "supersede",
            AddRelation("new", expected_revision=1, relation=_relation(RelationKind.SUPERSEDES, "old")),
            AddRelation("old", expected_revision=1, relation=_relation(RelationKind.SUPERSEDED_BY, "new")),
            SetStatus("old", expected_revision=2, status=MemoryStatus.SUPERSEDED),
        ),
    )
    for number in range(8):
        apply(4, _change(f"many{number}", Create(_draft(f"m{number}"))))
    for number in range(4):
        event = AccessEvent(id=f"e{number}", namespace=NS, node_id="b", node_revision=1, occurred_at=AT)
        steps.append(_Step(f"admit e{number}", 5, lambda opened, event=event: opened.record_admission(event)))  # type: ignore[misc]
        steps.append(_Step(f"use e{number}", 5, lambda opened, event=event: opened.record_use(event)))  # type: ignore[misc]
    purge = MemoryPurge(
        idempotency_key="purge", namespace=NS, node_ids=["m0", "b"], reason=_evidence("t://1"), occurred_at=AT
    )
    steps.append(_Step("purge", 6, lambda opened: opened.purge(purge)))
    apply(7, _change("last", Create(_draft("last"))))
    return steps


Answers = dict[str, Any]


async def work(repository: SqliteMemoryRepository, answers: Answers) -> None:
    """Do all steps; keep each answer, and each typed error as itself. Anything else is raised."""
    steps = _workload()
    await trio.lowlevel.checkpoint()

    async def one(step: _Step) -> None:
        try:
            answers[step.name] = await step.call(repository)
        except MemoryRepositoryError as error:
            answers[step.name] = error

    for group in range(steps[-1].group + 1):
        async with trio.open_nursery() as nursery:
            for step in steps:
                if step.group == group:
                    nursery.start_soon(one, step)


async def _identity(repository: SqliteMemoryRepository) -> tuple[object, ...]:
    request = SnapshotRequest(namespace=NS, statuses=frozenset(MemoryStatus))
    view = await repository.snapshot_namespace(request)
    events = (await repository.access_events(NS)).records
    return view.digest, view.change_token, sorted((record.kind.value, record.event.id) for record in events)


async def _missing(repository: SqliteMemoryRepository, answers: Answers) -> Iterator[str]:
    """Say which acknowledged answers are not there any more."""
    events = {(record.kind.value, record.event.id) for record in (await repository.access_events(NS)).records}
    purged = isinstance(answers.get("purge"), PurgeReceipt)
    heads = await repository.get_heads(NS, [f"m{each}" for each in range(8)] + ["a", "b", "old", "new", "last"])
    gone = {"m0", "b"}
    missing = []
    for name, answer in answers.items():
        if isinstance(answer, ChangeSetResult):
            for node in answer.nodes:
                # A purge that was not acknowledged may have happened all the same; then both are away.
                if node.id in gone and (purged or not gone & heads.keys()):
                    continue
                if node.id not in heads or heads[node.id].revision < node.revision:
                    missing.append(f"{name}: {node.id}")
        elif name.startswith(("admit", "use")) and answer is None:
            kind = "admission" if name.startswith("admit") else "use"
            if (kind, name.split()[1]) not in events and "b" in heads:
                missing.append(name)
    if purged and gone & heads.keys():
        missing.append("purge: a purged memory is there")
    if len(gone & heads.keys()) == 1 and "m0" not in gone - heads.keys():
        missing.append("purge: half of it happened")
    return iter(missing)


def _same(again: object, reference: object) -> bool:
    if isinstance(again, MemoryRepositoryError) and isinstance(reference, MemoryRepositoryError):
        return type(again) is type(reference) and again.fields() == reference.fields()
    if isinstance(again, PurgeReceipt) and isinstance(reference, PurgeReceipt):
        # An unacknowledged change set may have been stored before the purge or after it.
        return attrs.evolve(again, sequence=0) == attrs.evolve(reference, sequence=0)
    return again == reference


@attrs.frozen
class Reference:
    """What the workload gives on a good disk: the first time, and done again."""

    answers: Answers
    identity: tuple[object, ...]
    replayed: Answers


async def make_reference(template: Path, folder: Path) -> Reference:
    """Do the workload on a good disk, twice."""
    path = folder / "reference.db"
    shutil.copy(template, path)
    answers: Answers = {}
    replayed: Answers = {}
    async with open_sqlite_repository(path) as repository:
        await work(repository, answers)
        identity = await _identity(repository)
        await work(repository, replayed)
    wrong = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
    if wrong:
        raise RuntimeError(f"the workload fails on a good disk: {wrong}")
    return Reference(answers, identity, replayed)


def fresh(template: Path, folder: Path) -> Path:
    """Put a copy of the prepared file in the place of what is there."""
    for left in folder.glob("memory.db*"):
        left.unlink()
    return Path(shutil.copy(template, folder / "memory.db"))


async def check_afterwards(path: Path, answers: Answers, reference: Reference) -> None:
    """Open the file on a good disk and check all that has to hold. Raises AssertionError with what does not."""
    with trio.fail_after(_SECONDS):
        async with open_sqlite_repository(path, create=False) as repository:
            findings = await repository.verify()
            assert findings == (), f"the file does not verify: {findings[0]}"
            lost = list(await _missing(repository, answers))
            assert not lost, f"acknowledged and lost: {lost}"
            again: Answers = {}
            await work(repository, again)
            for name, answer in again.items():
                # As the first time, or as after the purge. Digests of purged change sets are keyed by the file, and
                # every copy of the prepared file has the same key.
                wanted = (reference.answers[name], reference.replayed[name])
                assert any(_same(answer, each) for each in wanted), f"{name} gives something else: {answer!r}"
            assert await _identity(repository) == reference.identity, "the memories differ from those of a good disk"
            assert (await repository.namespaces()) == (NS, FOREIGN), "there are other namespaces"
            assert await repository.verify() == (), "the file does not verify after the workload was done again"


async def _one(disk: FaultyDisk, template: Path, folder: Path, fault: Fault, seed: int, reference: Reference) -> int:
    """Provoke one fault; return how many acknowledged answers there were. Raises AssertionError with what is wrong."""
    path = fresh(template, folder)
    answers: Answers = {}
    disk.arm(fault)
    with trio.fail_after(_SECONDS):
        try:
            async with open_sqlite_repository(path, create=False) as repository:
                await work(repository, answers)
        except MemoryRepositoryError:
            pass  # it could not be opened
    if fault.manner == "cut" and disk.struck:
        disk.lose_unsynced(seed)
        # A machine that lost its power has no shared memory left.
        path.with_name("memory.db-shm").unlink(missing_ok=True)
    disk.disarm()
    await check_afterwards(path, answers, reference)
    return sum(not isinstance(answer, Exception) for answer in answers.values())


async def prepare(path: Path) -> None:
    """Make the file that every run starts from; it holds a memory of another namespace."""
    async with open_sqlite_repository(path) as repository:
        await repository.apply(_change("foreign", Create(_draft("theirs", namespace=FOREIGN)), namespace=FOREIGN))


async def _run(stride: int, seed: int, report: FaultReport) -> None:
    disk = install_faulty_disk()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = folder / "template.db"
        await prepare(template)
        reference = await make_reference(template, folder)
        path = fresh(template, folder)
        disk.arm(None)
        async with open_sqlite_repository(path, create=False) as repository:
            await work(repository, {})
        counts = dict(disk.counts)
        disk.disarm()
        for operation, manner, lasting in _COMBINATIONS:
            for number in range(1 + seed % stride, counts[operation] + 1, stride):
                fault = Fault(operation, number, manner, lasting)
                report.count(f"{operation} {manner}{' from then on' if lasting else ''}")
                try:
                    report.acknowledged += await _one(disk, template, folder, fault, seed + number, reference)
                except (Exception, trio.TooSlowError) as error:  # noqa: BLE001 - each is a finding of the run
                    disk.disarm()
                    report.failures.append(f"{fault}, seed {seed + number}: {type(error).__name__}: {error}")


def run(stride: int = 1, seed: int = 0) -> FaultReport:
    """Let every `stride`-th operation of each sort go wrong, in each manner."""
    report = FaultReport("storage")
    trio.run(_run, stride, seed, report)
    return report
