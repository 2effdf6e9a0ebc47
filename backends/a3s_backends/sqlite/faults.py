"""A disk that fails on purpose: an SQLite VFS for fault-injection tests.

It has to lie below the page-checksum VFS, so it must be installed before the process opens its first repository:

    disk = install_faulty_disk()          # first thing in the process
    disk.arm(Fault("write", 17, "fail"))  # the 17th write from now on fails
    ...
    disk.disarm()

Operations on the database and its WAL are counted; shared memory is left alone. One disk serves a whole process.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any, Final, Literal

import apsw
import attrs

__all__ = ["Fault", "FaultyDisk", "Operation", "PowerIsOut", "install_faulty_disk"]

Operation = Literal["read", "write", "sync", "truncate"]
Manner = Literal["fail", "full", "tear", "short", "cut", "kill"]
SECTOR: Final = 512


class PowerIsOut(apsw.IOError):
    """Nothing reaches this disk any more."""


@attrs.frozen
class Fault:
    """What goes wrong, and when.

    Attributes:
        operation: which sort of operation is counted.
        number: the how-manieth of them from arming on, from 1.
        manner: "fail" is an I/O error, "full" a full disk; "tear" writes a part and then fails; "short" gives a
            read too few bytes; "cut" ends the power: this and all later operations fail;
            "kill" kills this process by SIGKILL before the operation happens.
        lasting: whether every later one of that sort goes wrong, too.
    """

    operation: Operation
    number: int
    manner: Manner
    lasting: bool = False


@attrs.define
class _Unsynced:
    """What a power cut may undo in one file: its state at the last sync, as steps back and steps forward."""

    back: list[tuple[int, bytes, int]] = attrs.Factory(list)  # offset, bytes before, size before
    forward: list[tuple[str, int, bytes]] = attrs.Factory(list)  # "write" or "truncate", offset or size, bytes


@attrs.define(eq=False)
class FaultyDisk:
    """The state of the faulty disk of this process. Made by `install_faulty_disk`.

    Attributes:
        counts: operations since arming, by sort.
        struck: whether the armed fault has happened.
        syncs: every sync since the installation.
        delay: how many seconds each sync takes longer.
    """

    counts: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(("read", "write", "sync", "truncate"), 0))
    struck: bool = False
    syncs: int = 0
    delay: float = 0.0
    _fault: Fault | None = None
    _out: bool = False
    _unsynced: dict[str, _Unsynced] = attrs.Factory(dict)

    def arm(self, fault: Fault | None) -> None:
        """Count from 0 and let `fault` happen; None only counts."""
        self.disarm()
        self._fault = fault

    def disarm(self) -> None:
        """Work again; forget counts and what a power cut could undo."""
        self._fault, self._out, self.struck = None, False, False
        self.counts.update(dict.fromkeys(self.counts, 0))
        self._unsynced.clear()

    def lose_unsynced(self, seed: int) -> int:
        """After a power cut, and with every connection closed: drop a seeded part of what was not synced.

        Each file goes back to its last sync, then some of the later writes happen, some of them in part (by
        sectors). Return how many writes were lost at least in part.
        """
        chance = random.Random(seed)  # noqa: S311 - a reproducible choice
        lost = 0
        for name, unsynced in self._unsynced.items():
            if not os.path.exists(name):  # noqa: PTH110 - names come from SQLite
                continue
            descriptor = os.open(name, os.O_RDWR)
            try:
                for offset, before, size in reversed(unsynced.back):
                    os.pwrite(descriptor, before, offset)
                    os.ftruncate(descriptor, size)
                for action, place, data in unsynced.forward:
                    fate = chance.choice(("kept", "kept", "lost", "torn"))
                    lost += fate != "kept"
                    if fate == "kept":
                        _redo(descriptor, action, place, data)
                    elif fate == "torn" and action == "write":
                        cut = chance.randrange(0, len(data) // SECTOR + 1) * SECTOR
                        os.pwrite(descriptor, data[:cut], place)
            finally:
                os.close(descriptor)
        self._unsynced.clear()
        return lost

    # -- called by the files -------------------------------------------------------------------------------------------

    def before(self, operation: Operation) -> str | None:
        """Count an operation; return the manner in which it goes wrong, None when it goes well."""
        if self._out:
            raise PowerIsOut("the power is out")
        self.counts[operation] += 1
        if operation == "sync":
            self.syncs += 1
        fault = self._fault
        if fault is None or operation != fault.operation:
            return None
        count = self.counts[operation]
        if count == fault.number or (fault.lasting and count > fault.number):
            self.struck = True
            if fault.manner == "cut":
                self._out = True
            if fault.manner == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            return fault.manner
        return None

    def remember(self, name: str, descriptor_size: int, action: str, place: int, before: bytes, data: bytes) -> None:
        """Note a change that a power cut may undo."""
        unsynced = self._unsynced.setdefault(name, _Unsynced())
        unsynced.back.append((place, before, descriptor_size))
        unsynced.forward.append((action, place, data))

    def synced(self, name: str) -> None:
        """Note that a file's changes are durable."""
        self._unsynced.pop(name, None)


def _redo(descriptor: int, action: str, place: int, data: bytes) -> None:
    if action == "write":
        os.pwrite(descriptor, data, place)
    else:
        os.ftruncate(descriptor, place)


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, base: str, filename: Any, flags: list[int]) -> None:
        super().__init__(base, filename, flags)
        self._disk = disk
        self._name = filename.filename() if isinstance(filename, apsw.URIFilename) else str(filename)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        manner = self._disk.before("read")
        if manner == "short":
            return super().xRead(amount, offset)[: amount // 2]
        _go_wrong(manner)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        manner = self._disk.before("write")
        if manner in {"tear", "cut"}:
            self._write(data[: len(data) // 2 // SECTOR * SECTOR], offset)
        _go_wrong(manner)
        self._write(data, offset)

    def _write(self, data: bytes, offset: int) -> None:
        size = super().xFileSize()
        kept = max(0, min(len(data), size - offset))
        before = super().xRead(kept, offset) if kept else b""
        self._disk.remember(self._name, size, "write", offset, before, bytes(data))
        if data:
            super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        _go_wrong(self._disk.before("truncate"))
        old = super().xFileSize()
        before = super().xRead(old - size, size) if old > size else b""
        self._disk.remember(self._name, old, "truncate", size, before, b"")
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        _go_wrong(self._disk.before("sync"))
        if self._disk.delay:
            time.sleep(self._disk.delay)
        super().xSync(flags)
        self._disk.synced(self._name)


def _go_wrong(manner: str | None) -> None:
    if manner == "full":
        raise apsw.FullError("the disk is full, on purpose")
    if manner == "cut":
        raise PowerIsOut("the power is out")
    if manner is not None:
        raise apsw.IOError("the disk fails, on purpose")


class _Vfs(apsw.VFS):
    def __init__(self, disk: FaultyDisk, base: str) -> None:
        self._disk = disk
        self._base = base
        super().__init__("a3s-faulty", base=base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if name is None or flags[0] & apsw.SQLITE_OPEN_TRANSIENT_DB or flags[0] & apsw.SQLITE_OPEN_TEMP_DB:
            return super().xOpen(name, flags)
        return _File(self._disk, self._base, name, flags)


_installed: _Vfs | None = None


def install_faulty_disk() -> FaultyDisk:
    """Put the faulty disk under every connection that this process opens from now on.

    Raises:
        RuntimeError: a repository was opened before; then the checksum VFS already lies on the real disk.
    """
    global _installed  # noqa: PLW0603 - SQLite's list of VFSes is the process's, too
    if _installed is None:
        if "cksmvfs" in apsw.vfs_names():
            raise RuntimeError("install the faulty disk before the process opens its first repository")
        _installed = _Vfs(FaultyDisk(), apsw.vfs_names()[0])
    return _installed._disk
