"""A process that backs up, restores, purges and migrates until it is killed, and says what was acknowledged.

Run as `python -m tests.killed_upkeep`. Each line on stdin, `OPERATION FOLDER ANSWERS`, forks a child that does the
operation on FOLDER/memory.db and appends each answer to the file ANSWERS; its pid goes to stdout, and when it has
ended another line. A fork is far quicker than a start, so that many kills fit in a second.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import trio

from a3s_actors.testing.building import change, create, purge
from a3s_backends.sqlite import open_sqlite_repository, restore_sqlite_repository

CANARY = "xylophonic-zanzibar-7731"


async def operate(operation: str, folder: Path, answers: Path) -> None:
    path = folder / "memory.db"

    def say(line: str) -> None:
        descriptor = os.open(answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    if operation == "restore":
        for _ in range(2):
            receipt = await restore_sqlite_repository(folder / "copy.db", path, replace=True)
            assert receipt.replaced is not None
            say(f"restored {receipt.replaced.name}")
        return
    async with open_sqlite_repository(path, create=False) as repository:
        say("opened")
        if operation == "migration":
            await repository.apply(change("new", create("new")))
            say("created new")
        elif operation == "purge":
            for number in range(3):
                erased = await repository.purge(purge(f"p{number}", f"doomed{number}"))
                assert not erased.bytes_pending
                say(f"purged doomed{number}")
        else:

            async def write() -> None:
                for number in range(10_000):
                    await repository.apply(change(f"w{number}", create(f"w{number}", f"{CANARY} {number}")))
                    say(f"created w{number}")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                for number in range(2):
                    await repository.backup(folder / f"backup-{number}.db")
                    say(f"backup {number}")
                nursery.cancel_scope.cancel()


def main() -> None:
    for line in sys.stdin:
        operation, folder, answers = line.split()
        pid = os.fork()
        if pid == 0:
            # Nothing of SQLite or trio was used before the fork.
            code = 1
            try:
                trio.run(operate, operation, Path(folder), Path(answers))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
