"""Commands of an operator: backup, restore, export, purge, roll-up, doctor."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import attrs
import trio
import typer

from a3s_actors.cli.app import AsJson, command
from a3s_actors.cli.export import export_header, markdown_lines
from a3s_actors.cli.output import emit, json_text, say, table
from a3s_actors.cli.reasons import ReasonStore
from a3s_actors.cli.running import BadInput, Refused, Where
from a3s_actors.cli.values import (
    At,
    Because,
    Evidence,
    Given,
    Key,
    Statuses,
    decision,
    every,
    find,
    moment,
    statuses_of,
)
from a3s_actors.memory.purge import MemoryPurge, receipt_json
from a3s_actors.memory.reads import ScanRequest
from a3s_actors.memory.snapshot import SnapshotRequest
from a3s_actors.memory.values import MemoryStatus

if TYPE_CHECKING:
    from a3s_backends.sqlite.repository import SqliteMemoryRepository

_PAGE = 1000
_WORTH_COMPACTING = 1 << 20


@command("backup")
async def backup(
    where: Where,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The new file; nothing may be there.")],
    json: AsJson = False,
) -> None:
    """Copy the file while it may be in use; the copy is verified before it counts.

    It holds everything that the file holds now: what is purged later has to be erased from old backups by you.
    """
    async with where.open() as repository:
        receipt = await repository.backup(path)
    copy = ReasonStore(path)
    reasons = copy.path if await trio.to_thread.run_sync(copy.add_from, ReasonStore(where.file)) else None
    if json:
        emit(
            json_text(
                {
                    "path": str(receipt.path),
                    "bytes": receipt.bytes,
                    "namespaces": receipt.namespaces,
                    "nodes": receipt.nodes,
                    "reasons": None if reasons is None else str(reasons),
                }
            )
        )
    else:
        say(f"{path}: {receipt.nodes} memories in {receipt.namespaces} namespaces, {receipt.bytes:,} bytes, verified")
        if reasons is not None:
            say(f"{reasons}: the reasons of decisions", style="dim")


@command("restore")
async def restore(
    where: Where,
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `backup` made.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file that is there; it is kept aside.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Put a verified backup in the place of the file. Nobody may use the file meanwhile.

    The file that was there is kept under another name, and change tokens go on from the higher of both files.
    """
    from a3s_backends.sqlite import restore_sqlite_repository

    receipt = await restore_sqlite_repository(source, where.file, replace=replace)
    await trio.to_thread.run_sync(ReasonStore(where.file).add_from, ReasonStore(source))
    if json:
        replaced = None if receipt.replaced is None else str(receipt.replaced)
        emit(
            json_text(
                {
                    "path": str(receipt.path),
                    "namespaces": receipt.namespaces,
                    "nodes": receipt.nodes,
                    "replaced": replaced,
                }
            )
        )
    else:
        say(f"{receipt.path}: {receipt.nodes} memories in {receipt.namespaces} namespaces restored")
        if receipt.replaced is not None:
            say(f"the file that was there is now {receipt.replaced}; remove it when you are sure", style="dim")


# -- export ------------------------------------------------------------------------------------------------------------


@command("export")
async def export(
    where: Where,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: stdout.")] = None,
    format_: Annotated[str, typer.Option("--format", help="jsonl (whole nodes) or markdown (to read).")] = "jsonl",
    status: Statuses = None,
) -> None:
    """Write the namespace's memories, whole and in one order: the same memories give the same bytes.

    JSONL can be imported into an empty namespace of the same name, where the snapshot then has the same digest.
    """
    if format_ not in {"jsonl", "markdown"}:
        raise BadInput("--format: must be one of jsonl, markdown")
    request = SnapshotRequest(namespace=where.namespace, statuses=statuses_of(status) or frozenset(MemoryStatus))
    async with where.open() as repository:
        view = await repository.snapshot_namespace(request)
    view.verify(request)
    with _output(output) as stream:
        if format_ == "jsonl":
            stream.write(export_header(view).encode() + b"\n")
            for node in view.node_bytes:
                stream.write(node + b"\n")
        else:
            reasons = ReasonStore(where.file)
            for line in markdown_lines(view, reasons):
                stream.write(line.encode() + b"\n")
    if output is not None:
        say(f"{output}: {view.node_count} memories")


@contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BadInput(f"{path}: is there already; name a new file") from None
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


# -- purge -------------------------------------------------------------------------------------------------------------


@command("purge")
async def purge(
    where: Where,
    node_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="The memories to erase.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Erase the whole namespace.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    evidence: Evidence = None,
    because: Because = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Erase memories for good, to the last byte: texts, histories, change sets, audit events, reasons.

    What stays is a receipt without content; a replay of an erased change set is refused. Backups, exports and
    sources are yours to erase.
    """
    if bool(node_ids) == everything:
        raise BadInput("name the memories to erase, or give --everything")
    namespace = where.namespace
    whole = ScanRequest(namespace=namespace)
    async with where.open() as repository:
        if node_ids:
            heads = [await find(repository, namespace, node_id) for node_id in node_ids]
        else:
            heads = [head async for head in every(repository, whole)]
        if not yes:
            _confirm(f"Erase {len(heads)} memories of {where.file} for good?")
        with decision(where, Given(evidence, because, at, key)) as chosen:
            receipt = await repository.purge(
                MemoryPurge(
                    idempotency_key=chosen.key,
                    namespace=namespace,
                    node_ids=[head.id for head in heads] if node_ids else None,
                    reason=chosen.evidence,
                    occurred_at=chosen.at,
                )
            )
        gone = {item.uri for head in heads for item in head.evidence}
        async for head in every(repository, whole):
            gone -= {item.uri for item in head.evidence}
    await trio.to_thread.run_sync(ReasonStore(where.file).erase, gone)
    if json:
        emit(f'{{"receipt":{receipt_json(receipt)},"bytesPending":{json_text(receipt.bytes_pending)}}}')
        return
    say(
        f"erased {receipt.nodes} memories, {receipt.revisions} revisions, {len(receipt.change_sets)} change sets, "
        f"{receipt.access_events} audit events"
    )
    if receipt.neighbours:
        say(f"{len(receipt.neighbours)} neighbours lost their relation, each as a new revision", style="dim")
    if receipt.bytes_pending:
        say(
            "bytes pending: another user of the file still needs old pages; they go when it closes and the file is "
            "opened or closed next (doctor shows whether they have)",
            style="yellow",
        )


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise BadInput("nobody can be asked here; give --yes")
    if input(f"{question} [y/N] ").strip().lower() not in {"y", "yes"}:
        raise Refused("nothing was erased")


# -- audit -------------------------------------------------------------------------------------------------------------


@command("roll-up")
async def roll_up(
    where: Where,
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="Events from before it (RFC 3339).")],
    json: AsJson = False,
) -> None:
    """Keep old audit events as counts alone, so that the file stays small.

    Counts stay as they were. Events of that time are refused from then on.
    """
    bound, namespace = moment("--before", before), where.namespace
    async with where.open() as repository:
        count = await repository.roll_up_access_events(namespace, bound)
    if json:
        emit(json_text({"rolledUp": count}))
    else:
        say(f"{count} audit events are counts now")


# -- doctor ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Complaint:
    """Something that is not well, and what can be done.

    Attributes:
        what: what was found.
        cure: what `--fix` does, or what the operator has to do.
        fix: does it; None when only the operator can.
    """

    what: str
    cure: str
    fix: Callable[[SqliteMemoryRepository], Awaitable[object]] | None = None


@command("doctor")
async def doctor(
    where: Where,
    fix: Annotated[bool, typer.Option("--fix", help="Do what can be done; without, nothing is changed.")] = False,
    json: AsJson = False,
) -> None:
    """Say what is wrong with the file and what would be done about it; with --fix, do it.

    Never changes a memory. Exit code 0: nothing is wrong (any more); 1: something is.
    """
    fixed: list[Complaint] = []
    async with where.open() as repository:
        left = await _complaints(where.file, repository)
        if fix:
            for complaint in left:
                if complaint.fix is not None:
                    await complaint.fix(repository)
            before = left
            left = await _complaints(where.file, repository)
            still = {complaint.what for complaint in left}
            fixed = [complaint for complaint in before if complaint.what not in still]
    if json:
        emit(json_text({"ok": not left, "complaints": _listed(left), "fixed": _listed(fixed)}))
    else:
        for each in fixed:
            say(f"fixed: {each.what}", style="green")
        if left:
            table(
                ["what is wrong", "what to do", "doctor --fix"],
                ([each.what, each.cure, "does it" if each.fix else "cannot"] for each in left),
                wide="what to do",
            )
        else:
            say("nothing is wrong", style="green")
    if left:
        raise Refused(f"{len(left)} complaints" + ("" if fix else "; nothing was changed"))


def _listed(complaints: list[Complaint]) -> list[dict[str, object]]:
    return [{"what": each.what, "cure": each.cure, "fixable": each.fix is not None} for each in complaints]


async def _complaints(file: Path, repository: SqliteMemoryRepository) -> list[Complaint]:
    found = list(_about_files(file))
    findings = await repository.verify()
    index = [each for each in findings if each.where.startswith("lexical index")]
    if index:
        found.append(
            Complaint(
                f"the lexical index is damaged ({len(index)} findings)",
                "make it anew from the texts; no memory changes",
                lambda opened: opened.rebuild_index(),
            )
        )
    found += [
        Complaint(f"damaged: {each.where}: {each.message}", "restore a backup; keep this file for a closer look")
        for each in findings
        if each not in index
    ]
    counts = await repository.statistics()
    if counts.purge_pending:
        found.append(
            Complaint(
                "bytes of a purge are pending",
                "close other users of the file, then rewrite it",
                lambda opened: opened.compact(),
            )
        )
    elif counts.free_bytes > max(_WORTH_COMPACTING, counts.database_bytes // 4):
        found.append(
            Complaint(
                f"{counts.free_bytes:,} of {counts.database_bytes:,} bytes are free space",
                "rewrite the file without it",
                lambda opened: opened.compact(),
            )
        )
    return found


def _about_files(file: Path) -> Iterator[Complaint]:
    from a3s_backends.sqlite.folder import leftovers

    for each in (file, ReasonStore(file).path):
        if each.exists() and stat.S_IMODE(each.stat().st_mode) & 0o077:
            yield Complaint(f"{each.name} can be read by others", "set its mode to 0600", _narrow(each))
    # Opening the file has removed those that it may.
    for left in leftovers(file.parent):
        yield Complaint(f"{left.name} was left by a command that was killed", "remove it; it may hold every text")


def _narrow(path: Path) -> Callable[[SqliteMemoryRepository], Awaitable[object]]:
    return lambda _repository: trio.to_thread.run_sync(path.chmod, 0o600)
