"""What the journal backend promises beyond the conformance suite: files, owners, damage, failing storage, kills."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from a3s_actors.actor import ThreadRunner
from a3s_actors.memory import (
    Corruption,
    IdempotencyConflict,
    InvalidInput,
    LimitExceeded,
    MemoryNode,
    MemoryRepository,
    MemoryStatus,
    NodeAlreadyExists,
    Persistence,
    RepositoryClosed,
    RepositoryLocked,
    RevisionConflict,
    SnapshotRequest,
)
from a3s_backends.journal import FileMemoryRepository, open_file_repository, read_journal, record_line
from tests.journal_data import NS, change, create, event, revise
from tests.test_journal_format import DAMAGE, LINES, filled_to

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 10.0  # seconds until a test that would hang fails


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "repo"


def journal_of(folder: Path) -> Path:
    return folder / "memory-v2.journal"


def write_journal(folder: Path, data: bytes) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    journal_of(folder).write_bytes(data)
    return journal_of(folder)


class PausingRunner(ThreadRunner):
    """Runs functions in a thread; while `holding`, keeps each back before it begins or after it has ended."""

    def __init__(self, *, before: bool = False) -> None:
        super().__init__("pausing")
        self.entered = trio.Event()
        self._before = before
        self._holding = False
        self._gate = threading.Event()

    def hold(self) -> None:
        self._holding = True

    def release(self) -> None:
        self._holding = False
        self._gate.set()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        if not self._holding:
            return await super().run(function, *args)

        def held() -> T:
            if self._before:
                self._pause()
            value = function(*args)
            if not self._before:
                self._pause()
            return value

        return await super().run(held)

    def _pause(self) -> None:
        trio.from_thread.run_sync(self.entered.set)
        assert self._gate.wait(PATIENCE), "nobody released the runner"


class FailingSync:
    """Syncs for real, and fails once when told to."""

    def __init__(self) -> None:
        self.calls = 0
        self._fails_at = 0

    def fail_next(self, skip: int = 0) -> None:
        self._fails_at = self.calls + 1 + skip

    def __call__(self, descriptor: int) -> None:
        self.calls += 1
        if self.calls == self._fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(descriptor)


async def ids(repository: MemoryRepository) -> list[str]:
    request = SnapshotRequest(namespace=NS, statuses=set(MemoryStatus))
    return [node.id for node in (await repository.snapshot_namespace(request)).verify_deep(request)]


async def keys_opened(folder: Path) -> list[str]:
    async with open_file_repository(folder) as repository:
        return await ids(repository)


# -- files and owners -----------------------------------------------------------------------------------------------


async def test_a_new_folder_and_its_files_are_private_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "outer" / "repo"
    async with open_file_repository(folder) as repository:
        await repository.apply(change("k", create("n")))
        assert repository.path == journal_of(folder)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {"memory-v2.journal": 0o600, "memory-v2.lock": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


async def test_everything_survives_close_and_reopen(folder: Path) -> None:
    async with open_file_repository(folder) as repository:
        await repository.apply(change("k1", create("n"), create("m")))
        result = await repository.apply(change("k2", revise("n", 1)))
        await repository.record_admission(event("e", "n", 2))
        await repository.record_use(event("e", "n", 1))
    async with open_file_repository(folder) as repository:
        assert await repository.get(NS, "n") == result.node("n")
        assert (await repository.namespace_change_token(NS)).sequence == 2
        usage = await repository.usage_summary(NS, "n")
        assert (usage.admissions, usage.uses) == (1, 1)
        size = journal_of(folder).stat().st_size
        assert await repository.apply(change("k2", revise("n", 1))) == result
        await repository.record_use(event("e", "n", 1))
        with pytest.raises(IdempotencyConflict):
            await repository.apply(change("k2", revise("m", 1)))
        with pytest.raises(RevisionConflict):
            await repository.apply(change("k3", revise("n", 1)))
        assert journal_of(folder).stat().st_size == size


async def test_each_acknowledged_record_is_one_line_at_the_end(folder: Path) -> None:
    changes = [change(f"k{number}", create(f"n{number}")) for number in range(3)]
    async with open_file_repository(folder) as repository:
        for count, change_set in enumerate(changes, start=1):
            await repository.apply(change_set)
            assert journal_of(folder).read_bytes() == b"".join(map(record_line, changes[:count]))


async def test_a_second_owner_in_this_process_is_refused_until_the_first_has_closed(folder: Path) -> None:
    async with open_file_repository(folder) as repository:
        with pytest.raises(RepositoryLocked, match="another owner"):
            async with open_file_repository(folder):
                pass
        await repository.apply(change("k", create("n")))
    assert await keys_opened(folder) == ["n"]


async def test_a_second_owner_in_another_process_is_refused_too(folder: Path) -> None:
    program = """
import sys, trio
from a3s_actors.memory import RepositoryLocked
from a3s_backends.journal import open_file_repository
async def main():
    try:
        async with open_file_repository(sys.argv[1]):
            print("owner")
    except RepositoryLocked:
        print("refused")
trio.run(main)
"""

    async def other() -> str:
        done = await trio.run_process([sys.executable, "-c", program, str(folder)], capture_stdout=True)
        return str(done.stdout.decode().strip())

    async with open_file_repository(folder):
        assert await other() == "refused"
    assert await other() == "owner"


@pytest.mark.parametrize("name", ["memory-v2.journal", "memory-v2.lock"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
async def test_what_is_no_regular_file_is_refused_and_not_followed(folder: Path, name: str, kind: str) -> None:
    folder.mkdir()
    target = folder.parent / "target"
    if kind == "link":
        target.write_bytes(b"")
        (folder / name).symlink_to(target)
    elif kind == "dangling link":
        (folder / name).symlink_to(target)
    elif kind == "folder":
        (folder / name).mkdir()
    else:
        os.mkfifo(folder / name)
    with trio.fail_after(PATIENCE), pytest.raises(Persistence, match=name) as caught:
        async with open_file_repository(folder):
            pass
    assert type(caught.value) is Persistence
    assert target.exists() is (kind == "link")


@pytest.mark.parametrize("place", ["file", "file/below", "loop"])
async def test_a_folder_that_is_none_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(Persistence, match="open: "):
        async with open_file_repository(tmp_path / place):
            pass
    assert (tmp_path / "file").read_bytes() == b"content"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_nothing_stays_open_however_opening_ends(folder: Path) -> None:
    await keys_opened(folder)  # whatever is loaded at the first time is loaded
    before = open_files()
    write_journal(folder, b"damage\n")
    with pytest.raises(Corruption):
        await keys_opened(folder)
    assert open_files() == before
    write_journal(folder, LINES[0])
    with trio.CancelScope() as scope:
        scope.cancel()
        await keys_opened(folder)
    assert scope.cancelled_caught
    sync = FailingSync()
    sync.fail_next()
    with pytest.raises(Persistence, match="open: "):
        async with open_file_repository(folder, sync=sync):
            pass
    assert open_files() == before
    assert await keys_opened(folder) == ["m", "n"]
    assert open_files() == before


async def test_an_opening_that_is_cancelled_while_it_reads_gives_the_journal_up(folder: Path) -> None:
    write_journal(folder, b"".join(record_line(change(f"k{n}", create(f"n{n}"))) for n in range(1000)))
    runner = PausingRunner(before=True)
    runner.hold()
    ended = trio.Event()

    async def opening(scope: trio.CancelScope) -> None:
        with scope:
            async with open_file_repository(folder, blocking=runner):
                pytest.fail("it was cancelled")
        ended.set()

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(opening, scope)
        await runner.entered.wait()
        scope.cancel()
        runner.release()
        with trio.fail_after(PATIENCE):
            await ended.wait()
    assert len(await keys_opened(folder)) == 1000


async def test_opening_makes_the_journal_its_folder_and_new_parents_durable(tmp_path: Path) -> None:
    folder = tmp_path / "outer" / "repo"
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        os.fsync(descriptor)

    async with open_file_repository(folder, sync=sync):
        pass
    places = [tmp_path, folder.parent, journal_of(folder), folder]
    assert synced == [place.stat().st_ino for place in places]
    # The owner before may have been killed before its own sync; and a cut must not come undone.
    synced.clear()
    write_journal(folder, LINES[0] + b"torn")
    async with open_file_repository(folder, sync=sync):
        pass
    assert synced == [place.stat().st_ino for place in (journal_of(folder), folder, journal_of(folder))]


# -- torn and damaged files -----------------------------------------------------------------------------------------


async def test_a_last_line_cut_anywhere_is_cut_off_and_the_journal_goes_on(folder: Path) -> None:
    whole = b"".join(LINES[:3])
    for size in range(len(LINES[3])):
        journal = write_journal(folder, whole + LINES[3][:size])
        async with open_file_repository(folder) as repository:
            assert journal.read_bytes() == whole
            assert (await repository.usage_summary(NS, "n")).uses == 0
    async with open_file_repository(folder) as repository:
        await repository.record_use(event("e2", "n", 2))
    assert journal.read_bytes() == b"".join(LINES)


async def test_a_journal_that_is_one_torn_line_opens_empty(folder: Path) -> None:
    journal = write_journal(folder, LINES[0][:-1])
    assert await keys_opened(folder) == []
    assert journal.read_bytes() == b""


DAMAGED_FILES = {name: LINES[0] + LINES[1] + line + LINES[3] for name, (line, _) in DAMAGE.items()} | {
    "repeated change": LINES[0] + LINES[1] + LINES[0],
    "repeated event": LINES[0] + LINES[1] + LINES[1],
    "key used again": LINES[0] + LINES[1] + record_line(change("k1", create("other"))),
    "stale revision": LINES[0] + LINES[1] + record_line(change("k2", revise("n", 7))),
    "event of no node": LINES[0] + LINES[1] + LINES[3],
}


@pytest.mark.parametrize("name", DAMAGED_FILES)
async def test_any_other_damage_refuses_to_open_and_leaves_the_file_as_it_is(folder: Path, name: str) -> None:
    journal = write_journal(folder, DAMAGED_FILES[name] + LINES[3][:40])
    before = journal.read_bytes()
    with pytest.raises(Corruption) as caught:
        await keys_opened(folder)
    assert caught.value.where == f"memory-v2.journal, byte {len(LINES[0] + LINES[1])}, line 3"
    assert journal.read_bytes() == before
    # The damaged journal has no owner: repaired, it opens.
    write_journal(folder, b"".join(LINES[:2]))
    assert await keys_opened(folder) == ["m", "n"]


@pytest.mark.parametrize("place", ["start", "end"])
async def test_an_empty_line_is_damage_at_the_start_and_at_the_end(folder: Path, place: str) -> None:
    journal = write_journal(folder, b"\n" + LINES[0] if place == "start" else LINES[0] + b"\n")
    before = journal.read_bytes()
    with pytest.raises(Corruption, match="line is empty") as caught:
        await keys_opened(folder)
    assert caught.value.where.endswith("line 1" if place == "start" else "line 2")
    assert journal.read_bytes() == before


async def test_no_flipped_bit_ever_opens_as_another_state(folder: Path) -> None:
    data = b"".join(LINES)
    for place in range(0, len(data) - 1, 7):
        flipped = data[:place] + bytes([data[place] ^ 0x01]) + data[place + 1 :]
        journal = write_journal(folder, flipped)
        with pytest.raises(Corruption):
            await keys_opened(folder)
        assert journal.read_bytes() == flipped


# -- order, batches, publication ------------------------------------------------------------------------------------


async def test_waiting_writes_share_one_sync_and_each_gets_its_own_outcome(folder: Path) -> None:
    runner, sync = PausingRunner(before=True), FailingSync()
    outcomes: dict[str, object] = {}

    async def write(repository: FileMemoryRepository, key: str, node_id: str) -> None:
        try:
            outcomes[key] = (await repository.apply(change(key.partition("/")[0], create(node_id)))).nodes[0].id
        except Exception as error:
            outcomes[key] = type(error)

    async with open_file_repository(folder, blocking=runner, sync=sync) as repository:
        await repository.apply(change("first", create("n")))
        runner.hold()
        calls = sync.calls
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, repository, "head", "head")
            await runner.entered.wait()
            for number in range(10):
                nursery.start_soon(write, repository, f"k{number}", f"n{number}")
                await wait_all_tasks_blocked()
            for key, node_id in [("taken", "n"), ("taken in the batch", "n3"), ("k4/again", "n4"), ("k5/other", "x")]:
                nursery.start_soon(write, repository, key, node_id)
                await wait_all_tasks_blocked()
            assert outcomes == {}
            runner.release()
        assert sync.calls == calls + 2  # the head alone, then all others
        wanted: dict[str, object] = {"head": "head"}
        wanted.update((f"k{number}", f"n{number}") for number in range(10))
        wanted.update({"taken": NodeAlreadyExists, "taken in the batch": NodeAlreadyExists})
        wanted.update({"k4/again": "n4", "k5/other": IdempotencyConflict})
        assert outcomes == wanted
    with read_journal(journal_of(folder)) as reader:
        written = [record.idempotency_key for record in reader]  # type: ignore[union-attr]
    assert written == ["first", "head", *(f"k{number}" for number in range(10))]
    assert len(await keys_opened(folder)) == 12


async def test_a_batch_builds_on_what_came_before_in_it(folder: Path) -> None:
    runner = PausingRunner(before=True)
    async with open_file_repository(folder, blocking=runner) as repository:
        runner.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repository.apply, change("head", create("head")))
            await runner.entered.wait()
            steps: list[tuple[Any, object]] = [
                (repository.apply, change("k1", create("n"))),
                (repository.apply, change("k2", revise("n", 1))),
                (repository.record_admission, event("e", "n", 2)),
                (repository.record_use, event("e", "n", 1)),
            ]
            for call, message in steps:
                nursery.start_soon(call, message)
                await wait_all_tasks_blocked()
            runner.release()
        node = await repository.get(NS, "n")
        assert isinstance(node, MemoryNode)
        assert (node.revision, len(node.history)) == (2, 1)
        assert (await repository.usage_summary(NS, "n")).admissions == 1
    async with open_file_repository(folder) as repository:
        assert await repository.get(NS, "n") == node


async def test_readers_see_a_write_only_when_its_caller_may_know_of_it(folder: Path) -> None:
    runner = PausingRunner()
    async with open_file_repository(folder, blocking=runner) as repository:
        runner.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repository.apply, change("k", create("n")))
            await runner.entered.wait()
            assert journal_of(folder).stat().st_size > 0  # written and synced, and not published
            assert await ids(repository) == []
            runner.release()
        assert await ids(repository) == ["n"]


# -- cancellation and closing ---------------------------------------------------------------------------------------


async def test_a_caller_cancelled_while_its_record_is_being_synced_gets_the_outcome(folder: Path) -> None:
    runner = PausingRunner()
    results: list[str] = []

    async def caller(scope: trio.CancelScope) -> None:
        with scope:
            results.append((await repository.apply(change("k", create("n")))).nodes[0].id)
            await trio.lowlevel.checkpoint()
            results.append("not cancelled")

    async with open_file_repository(folder, blocking=runner) as repository:
        runner.hold()
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller, scope)
            await runner.entered.wait()
            scope.cancel()
            await wait_all_tasks_blocked()
            assert results == []
            runner.release()
        assert results == ["n"]
        assert scope.cancelled_caught
        size = journal_of(folder).stat().st_size
        again = await repository.apply(change("k", create("n")))
        assert again.nodes == (await repository.get(NS, "n"),)
        assert journal_of(folder).stat().st_size == size


async def test_a_caller_cancelled_while_queued_leaves_nothing_behind(folder: Path) -> None:
    runner = PausingRunner()
    async with open_file_repository(folder, blocking=runner) as repository:
        runner.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repository.apply, change("head", create("head")))
            await runner.entered.wait()
            with trio.move_on_after(0.01) as scope:
                await repository.apply(change("late", create("late")))
            assert scope.cancelled_caught
            runner.release()
        assert await ids(repository) == ["head"]
        await repository.apply(change("late", create("other")))  # the key was never used
    assert await keys_opened(folder) == ["head", "other"]


async def test_closing_finishes_the_writes_that_wait(folder: Path) -> None:
    runner = PausingRunner(before=True)
    done: list[str] = []

    async def write(repository: FileMemoryRepository, node_id: str) -> None:
        await repository.apply(change(node_id, create(node_id)))
        done.append(node_id)

    async with trio.open_nursery() as nursery:
        async with open_file_repository(folder, blocking=runner) as repository:
            runner.hold()
            for node_id in ("a", "b", "c"):
                nursery.start_soon(write, repository, node_id)
                await wait_all_tasks_blocked()
            runner.release()
        assert sorted(done) == ["a", "b", "c"]
    assert await keys_opened(folder) == ["a", "b", "c"]


async def test_every_call_after_the_close_gets_the_typed_error(folder: Path) -> None:
    async with open_file_repository(folder) as repository:
        await repository.apply(change("k", create("n")))
    calls: list[Callable[[], object]] = [
        lambda: repository.apply(change("k", create("n"))),
        lambda: repository.record_use(event("e", "n")),
        lambda: repository.record_admission(event("e", "n")),
        lambda: repository.get(NS, "n"),
        repository.namespaces,
    ]
    for call in calls:
        with pytest.raises(RepositoryClosed, match="open it again"):
            await call()  # type: ignore[misc]
    assert "closed" in repr(repository)


# -- failing storage ------------------------------------------------------------------------------------------------


async def check_poisoned(repository: FileMemoryRepository, published: list[str]) -> None:
    """Every write is refused with the cure, whatever it is; reads serve what was published."""
    for call, message in (
        (repository.apply, change("new", create("new"))),
        (repository.apply, change("known", create("known"))),
        (repository.record_admission, event("new", "known")),
    ):
        with pytest.raises(Persistence, match="close the repository and open it again"):
            await call(message)  # type: ignore[arg-type]
    assert await ids(repository) == published


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let writes fail for real beyond `size` bytes of any file, after a part of them was written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_write_that_ends_half_way_poisons_the_writer_until_it_is_reopened(folder: Path) -> None:
    async with open_file_repository(folder) as repository:
        await repository.apply(change("known", create("known")))
        size = journal_of(folder).stat().st_size
        with file_size_limit(size + 100), pytest.raises(Persistence, match=r"memory-v2\.journal: File too large"):
            await repository.apply(change("k", create("n")))
        assert journal_of(folder).stat().st_size == size + 100
        await check_poisoned(repository, ["known"])
        assert journal_of(folder).stat().st_size == size + 100
    async with open_file_repository(folder) as repository:
        assert await ids(repository) == ["known"]
        await repository.apply(change("k", create("n")))
    assert await keys_opened(folder) == ["known", "n"]


async def test_a_failed_sync_poisons_the_writer_and_a_retry_after_reopening_settles_it(folder: Path) -> None:
    sync = FailingSync()
    async with open_file_repository(folder, sync=sync) as repository:
        await repository.apply(change("known", create("known")))
        sync.fail_next()
        with pytest.raises(Persistence, match="Input/output error"):
            await repository.apply(change("k", create("n")))
        written = journal_of(folder).read_bytes()
        await check_poisoned(repository, ["known"])
        assert journal_of(folder).read_bytes() == written
    async with open_file_repository(folder) as repository:
        result = await repository.apply(change("k", create("n")))
        assert result.nodes == (await repository.get(NS, "n"),)
        with pytest.raises(IdempotencyConflict):
            await repository.apply(change("k", create("other")))
    assert await keys_opened(folder) == ["known", "n"]


async def test_a_failed_write_fails_its_whole_batch_and_publishes_none_of_it(folder: Path) -> None:
    runner, sync = PausingRunner(before=True), FailingSync()
    failed: list[str] = []

    async def write(repository: FileMemoryRepository, node_id: str) -> None:
        with pytest.raises(Persistence, match="Input/output error"):
            await repository.apply(change(node_id, create(node_id)))
        failed.append(node_id)

    async with open_file_repository(folder, blocking=runner, sync=sync) as repository:
        await repository.apply(change("known", create("known")))
        runner.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repository.record_use, event("head", "known"))
            await runner.entered.wait()
            for node_id in ("a", "b", "known"):
                nursery.start_soon(write, repository, node_id)
                await wait_all_tasks_blocked()
            sync.fail_next(skip=1)  # after the head's own
            runner.release()
        assert sorted(failed) == ["a", "b", "known"]
        assert (await repository.usage_summary(NS, "known")).uses == 1
        await check_poisoned(repository, ["known"])


async def test_a_record_over_sixteen_mebibytes_is_refused_before_anything_is_written(folder: Path) -> None:
    async with open_file_repository(folder) as repository:
        await repository.apply(change("known", create("known")))
        size = journal_of(folder).stat().st_size
        with pytest.raises(LimitExceeded, match="journal record bytes"):
            await repository.apply(filled_to(16 * 1024 * 1024 + 1))
        assert journal_of(folder).stat().st_size == size
        await repository.apply(change("k", create("fill")))
    assert await keys_opened(folder) == ["fill", "known"]


@pytest.mark.parametrize("deed", ["append", "truncate", "remove", "replace"])
async def test_a_journal_that_somebody_else_touches_takes_no_more_writes(folder: Path, deed: str) -> None:
    async with open_file_repository(folder) as repository:
        await repository.apply(change("known", create("known")))
        journal = journal_of(folder)
        if deed == "append":
            journal.write_bytes(journal.read_bytes() + LINES[0])
        elif deed == "truncate":
            os.truncate(journal, 0)
        elif deed == "remove":
            journal.unlink()
        else:
            (folder / "new").write_bytes(b"")
            (folder / "new").replace(journal)
        before = journal.read_bytes() if journal.exists() else None
        with pytest.raises(Persistence, match="while it was open"):
            await repository.apply(change("k", create("n")))
        await check_poisoned(repository, ["known"])
        assert (journal.read_bytes() if journal.exists() else None) == before


# -- kills ----------------------------------------------------------------------------------------------------------

KILLED = """
import sys, trio
from a3s_backends.journal import open_file_repository
from tests.journal_data import change, create
async def work(repository, name):
    for number in range(1_000_000):
        node_id = f"{name}-{number}"
        await repository.apply(change(node_id, create(node_id, f"memory {number} " * (1 + number % 300))))
        print(node_id, flush=True)
async def main():
    async with open_file_repository(sys.argv[1]) as repository, trio.open_nursery() as nursery:
        for name in range(4):
            nursery.start_soon(work, repository, f"{sys.argv[2]}-{name}")
trio.run(main)
"""


@pytest.mark.slow
async def test_a_kill_in_the_middle_of_writing_loses_nothing_that_was_acknowledged(folder: Path) -> None:
    acknowledged: list[str] = []

    def run_and_kill(name: str, lines: int) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder), name], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            read = [child.stdout.readline() for _ in range(lines)]
            child.kill()
            read += child.stdout.readlines()
            assert child.wait() == -9
        assert all(read[:lines])
        acknowledged.extend(line.strip() for line in read if line.endswith("\n"))

    for name, lines in (("one", 1), ("two", 57), ("three", 211)):
        await trio.to_thread.run_sync(run_and_kill, name, lines)
        stored = set(await keys_opened(folder))
        assert set(acknowledged) <= stored
        # At most one more for each of the four writers of each child.
        assert len(stored) <= len(acknowledged) + 4 * 3


@pytest.mark.parametrize("name", ["", "a\0b", "\udcff"])
async def test_a_folder_that_no_file_system_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="directory"):
        async with open_file_repository(name):
            pass
