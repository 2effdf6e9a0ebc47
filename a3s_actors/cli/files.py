"""Commands that move much at once: import, apply, snapshot, journal import and export."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import attrs
import trio
import typer

from a3s_actors.cli.app import AsJson, command
from a3s_actors.cli.export import is_export, read_export
from a3s_actors.cli.output import console, emit, json_text, safe, say, table
from a3s_actors.cli.running import BadInput, Refused, Where, error_json, exit_code
from a3s_actors.cli.sources import Source, read_source
from a3s_actors.cli.values import LabelPairs, Statuses, choice, labels_of, moment, statuses_of
from a3s_actors.memory.codec import namespace_json, result_json
from a3s_actors.memory.decoding import structure
from a3s_actors.memory.errors import (
    ChangeSetPurged,
    IdempotencyConflict,
    InvalidInput,
    MemoryRepositoryError,
    NodeAlreadyExists,
)
from a3s_actors.memory.limits import MAX_CHANGE_SET_BYTES
from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.snapshot import SnapshotRequest
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import AccessKind, MemoryKind, MemoryNamespace, MemoryStatus

if TYPE_CHECKING:
    from rich.progress import Progress

    from a3s_actors.memory.repository import MemoryRepository

_WRITERS = 64
_PAGE = 1000
_PROGRESS_FROM = 200


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block works, if that is a terminal; gives the function that advances it."""
    if not sys.stderr.isatty() or (total is not None and total < _PROGRESS_FROM):
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: _advance(bar, task, done)


def _advance(bar: Progress, task: Any, done: int) -> None:
    bar.advance(task, done)


@attrs.define
class ImportCounts:
    """What an import did with a file's memories."""

    added: int = 0
    known: int = 0
    purged: int = 0


async def import_source(
    repository: MemoryRepository,
    namespace: MemoryNamespace,
    source: Source,
    at: Timestamp,
    advance: Callable[[int], None] = lambda _done: None,
) -> ImportCounts:
    """Propose a file's memories: each becomes a candidate, unless its text is there already or was purged.

    Many are proposed at once, so that the repository can commit them together.

    Raises:
        BadInput: a memory breaks a limit; then nothing was proposed.
        MemoryRepositoryError: the repository failed; what was proposed before stays, and another run goes on.
    """
    change_sets = [source.change_set(item, namespace, at) for item in source.items]
    known = await repository.get_heads(namespace, list(map(_created_id, change_sets)))
    counts = ImportCounts(known=source.repeated)
    waiting = iter(change_sets)

    async def work() -> None:
        for change_set in waiting:
            if _created_id(change_set) in known:
                counts.known += 1
            else:
                try:
                    await repository.apply(change_set)
                    counts.added += 1
                except (NodeAlreadyExists, IdempotencyConflict):
                    counts.known += 1  # another import was faster
                except ChangeSetPurged:
                    counts.purged += 1
            advance(1)

    async with trio.open_nursery() as nursery:
        for number in range(min(_WRITERS, len(change_sets))):
            nursery.start_soon(work, name=f"import {number}")
    return counts


def _created_id(change_set: MemoryChangeSet) -> str:
    return change_set.idempotency_key.removeprefix("import-")


@command("import")
async def import_files(
    where: Where,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Markdown, plain text or JSONL.")],
    kind: Annotated[str, typer.Option("--kind", help="episodic, semantic or procedural.")] = "semantic",
    label: LabelPairs = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="When (RFC 3339); default: now.")] = None,
    json: AsJson = False,
) -> None:
    """Propose the memories of files: each paragraph, list item or JSONL line becomes a candidate.

    A memory's identity is its text: importing again adds only what is new. All files are read and checked before
    anything is proposed. An export (JSONL) is loaded as it is, histories and statuses included, into its own
    namespace, which must hold no memories.
    """
    namespace, occurred_at = where.namespace, moment("--at", at)
    chosen, labels = choice("--kind", MemoryKind, kind), labels_of(label)
    if any(map(is_export, files)):
        await _load_export(where, files, json=json)
        return
    sources = [read_source(file, chosen, labels) for file in files]
    for source in sources:
        for item in source.items:
            source.change_set(item, namespace, occurred_at)
    every: list[ImportCounts] = []
    async with where.open() as repository:
        with progress("importing", sum(len(source.items) for source in sources)) as advance:
            for source in sources:
                every += [await import_source(repository, namespace, source, occurred_at, advance)]
    rows = list(zip(sources, every, strict=True))
    if json:
        listed = [
            {
                "file": source.name,
                "added": counts.added,
                "known": counts.known,
                "purged": counts.purged,
                "skippedBlocks": source.skipped,
            }
            for source, counts in rows
        ]
        emit(json_text({"files": listed}))
        return
    table(
        ["file", "added", "known", "purged", "skipped blocks"],
        (
            [source.name, str(counts.added), str(counts.known), str(counts.purged), str(source.skipped)]
            for source, counts in rows
        ),
        wide="file",
    )
    added = sum(counts.added for _, counts in rows)
    if added:
        say(f"{added} new candidates; go on with: a3s-actors review", style="dim")


async def _load_export(where: Where, files: list[Path], *, json: bool) -> None:
    if len(files) != 1:
        raise BadInput("an export is imported by itself; give one file")
    view, nodes = read_export(files[0], where.namespace)
    async with where.open() as repository:
        await repository.load_namespace(where.namespace, nodes)
        request = SnapshotRequest(namespace=where.namespace, statuses=view.statuses)
        stored = await repository.snapshot_namespace(request)
    if stored.digest != view.digest:
        raise Refused("what was stored is not what was exported; restore a backup and report this")
    if json:
        emit(json_text({"loaded": len(nodes), "digest": stored.digest}))
    else:
        say(f"{files[0]}: {len(nodes)} memories loaded with their histories, {stored.digest[:19]}…")


# -- raw access --------------------------------------------------------------------------------------------------------


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(MAX_CHANGE_SET_BYTES + 1):
        number += 1
        if len(line) > MAX_CHANGE_SET_BYTES:
            raise BadInput(f"line {number}: is longer than {MAX_CHANGE_SET_BYTES} bytes")
        if line.strip():
            yield number, line


def parse_change_set(line: bytes) -> MemoryChangeSet:
    """Read one change set, strictly.

    Raises:
        InvalidInput: it is no JSON, a field is unknown, missing, malformed or there twice.
        LimitExceeded: a field is too large.
    """
    import json

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise InvalidInput("json", "a field is there twice in one object")
        return record

    try:
        value = json.loads(line.decode(), object_pairs_hook=distinct)
    except UnicodeDecodeError as error:
        raise InvalidInput("json", f"byte {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        message = "nests too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput("json", message) from None
    return structure(value, MemoryChangeSet)


@command("apply")
async def apply(
    where: Where,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL of canonical change sets; - is stdin.")],
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a refused line.")] = False,
) -> None:
    """Apply change sets as they are: raw access to every namespace that the file names.

    No policy stands between the file and the kernel: evidence of any kind activates here, and --tenant, --principal
    and --scope do not matter. Prints one canonical result for each line, or {"error": kind, …}; stops at the first
    refusal unless --keep-going, and ends with the worst exit code.
    """
    worst = 0
    async with where.open() as repository:
        with _open_input(file) as stream, progress("applying", None) as advance:
            for number, line in _lines(stream):
                try:
                    emit(result_json(await repository.apply(parse_change_set(line))))
                except MemoryRepositoryError as error:
                    emit(error_json(error))
                    sys.stderr.write(f"line {number}: {safe(str(error))}\n")
                    worst = max(worst, exit_code(error))
                    if not keep_going:
                        break
                advance(1)
    sys.stdout.flush()
    if worst:
        raise SystemExit(worst)


@contextmanager
def _open_input(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed by the block below
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    with stream:
        yield stream


@command("snapshot")
async def snapshot(
    where: Where,
    status: Statuses = None,
    max_nodes: Annotated[int, typer.Option("--max-nodes", help="Refuse a larger view.")] = 100_000,
    json: AsJson = False,
) -> None:
    """Take a complete, verified view of the namespace and print its identity: digest, size, change token."""
    request = SnapshotRequest(
        namespace=where.namespace,
        statuses=statuses_of(status) or frozenset({MemoryStatus.ACTIVE}),
        max_nodes=max_nodes,
    )
    async with where.open() as repository:
        view = await repository.snapshot_namespace(request)
    view.verify(request)
    token = view.change_token
    identity = {
        "profile": view.profile,
        "digest": view.digest,
        "byteCount": view.byte_count,
        "nodeCount": view.node_count,
        "changeToken": None if token is None else {"profile": token.profile, "sequence": token.sequence},
    }
    if json:
        emit(json_text(identity))
    else:
        sequence = "none" if token is None else str(token.sequence)
        table(
            ["field", "value"],
            ([name, sequence if name == "changeToken" else str(value)] for name, value in identity.items()),
            wide="value",
        )


# -- journals ----------------------------------------------------------------------------------------------------------


@command("journal import")
async def journal_import(
    where: Where,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with memory-v2.journal.")],
    json: AsJson = False,
) -> None:
    """Apply a journal to the file: change sets, admissions and uses, in their order. Doing it again changes nothing."""
    from a3s_backends.journal import JOURNAL_NAME, BaseRecord, read_journal

    change_sets = events = 0
    async with where.open() as repository:
        with read_journal(directory / JOURNAL_NAME) as reader, progress("importing", None) as advance:
            for record in reader:
                try:
                    if isinstance(record, MemoryChangeSet):
                        await repository.apply(record)
                        change_sets += 1
                    elif isinstance(record, BaseRecord):
                        raise Refused("the journal was rewritten by a purge; its base state cannot be applied")
                    elif record.kind is AccessKind.ADMISSION:
                        await repository.record_admission(record.event)
                        events += 1
                    else:
                        await repository.record_use(record.event)
                        events += 1
                except MemoryRepositoryError as error:
                    raise Refused(f"line {reader.line}: {error}; what came before it is stored") from error
                advance(1)
            torn = reader.torn_tail
    if json:
        emit(json_text({"changeSets": change_sets, "accessEvents": events, "tornBytes": torn.size if torn else 0}))
    else:
        say(f"{change_sets} change sets and {events} audit events")
        if torn:
            say(f"left out {torn.size} bytes of a last line whose writing was cut short", style="yellow")


@command("journal export")
async def journal_export(
    where: Where,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    json: AsJson = False,
) -> None:
    """Write the whole file as a journal of the a3s-memory crate's format, and check that it gives the same memories."""
    if directory.exists():
        raise BadInput(f"{directory}: is there already; name a new folder")
    source = where.existing()
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=_parent(directory)))
    (building / "journal").mkdir(mode=0o700)
    try:
        records = await _export(where, building / "journal")
        (building / "journal").rename(directory)
        _sync_folder(directory.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if json:
        emit(json_text({"directory": str(directory), "records": records}))
    else:
        say(f"{source}: {records} records written to {directory} and checked")


def _parent(directory: Path) -> Path:
    if not directory.parent.is_dir():
        raise BadInput(f"{directory.parent}: there is no such folder")
    return directory.parent


async def _export(where: Where, folder: Path) -> int:
    from a3s_backends.journal import JOURNAL_NAME, open_file_repository, record_line

    records = 0
    async with where.open() as repository:
        with progress("exporting", None) as advance, _new_file(folder / JOURNAL_NAME) as output:
            async for record in _log(repository):
                output.write(record_line(record))
                records += 1
                advance(1)
        # A journal is only good when it gives the same memories again; after a purge it cannot.
        async with open_file_repository(folder) as copy:
            for namespace in await repository.namespaces():
                if await _identity(repository, namespace) != await _identity(copy, namespace):
                    raise Refused(
                        f"namespace {namespace_json(namespace)}: its log does not give its memories again, "
                        "because something was purged from it or written meanwhile"
                    )
    return records


async def _log(repository: Any) -> AsyncIterator[Any]:
    cursor = None
    while True:
        page = await repository.log(cursor, _PAGE)
        for record in page.records:
            yield record
        if page.next_after is None:
            return
        cursor = page.next_after


async def _identity(repository: MemoryRepository, namespace: MemoryNamespace) -> str:
    request = SnapshotRequest(namespace=namespace, statuses=frozenset(MemoryStatus))
    return (await repository.snapshot_namespace(request)).digest


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
