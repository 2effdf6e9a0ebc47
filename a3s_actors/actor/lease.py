"""Leases: one owner for each resource, for as long as a `with` block lasts.

A lease falls with its scope, also when the block fails or is cancelled, so none can be forgotten. Nothing here
waits: a lease that is held is refused at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs

from a3s_actors.actor.errors import LeaseHeld

__all__ = ["FileLease", "Lease", "LeaseRegistry", "hold_file_lock"]

# A lock file may be replaced between opening and locking; each try sees a newer one.
_LOCK_TRIES = 8


@attrs.frozen(eq=False)
class Lease:
    """The right to be the only one at a resource.

    Attributes:
        resource: What is held.
        owner: Who holds it.
    """

    resource: str
    owner: str


class LeaseRegistry:
    """Leases inside one process, for the tasks of one trio run."""

    def __init__(self) -> None:
        self._held: dict[str, Lease] = {}

    @contextlib.contextmanager
    def hold(self, resource: str, owner: str) -> Iterator[Lease]:
        """Hold `resource` for the length of the block. Not reentrant, also not for the same owner.

        Args:
            resource: What to hold.
            owner: Who holds it; for the error that others get.

        Raises:
            LeaseHeld: Somebody holds it; nothing has changed.
        """
        holder = self._held.get(resource)
        if holder is not None:
            raise LeaseHeld(resource, holder.owner)
        lease = self._held[resource] = Lease(resource, owner)
        try:
            yield lease
        finally:
            del self._held[resource]

    def holders(self) -> dict[str, str]:
        """Return a snapshot: owner by resource, in the order of taking."""
        return {lease.resource: lease.owner for lease in self._held.values()}


@attrs.frozen(eq=False)
class FileLease:
    """An exclusive lock on a file, against other processes and this one.

    Attributes:
        path: The lock file.
    """

    path: Path


@contextlib.contextmanager
def hold_file_lock(path: str | os.PathLike[str]) -> Iterator[FileLease]:
    """Hold an exclusive `flock` on `path` for the length of the block.

    The file is created with mode 0600 when missing, an own file is narrowed to 0600, its content is not touched,
    and it is never removed (removing a lock file lets two holders in). The lock ends with the block, and with the
    process when that is killed. It does not pass on to programs that are started meanwhile; a forked child that
    leaves the block leaves the parent's lock alone.

    Synchronous: some system calls that do not wait on a local file system.

    Raises:
        LeaseHeld: Another process, or another block of this one, holds it.
        OSError: The file cannot be opened; in particular `ELOOP` when `path` itself is a symbolic link, and
            `EINVAL` when it is no regular file.
    """
    where = Path(path)
    descriptor = _open_locked(where)
    owner_pid = os.getpid()
    try:
        yield FileLease(where)
    finally:
        try:
            # Unlock by name: closing is not enough while a forked child still has the same open file.
            if os.getpid() == owner_pid:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _open_locked(path: Path) -> int:
    for _ in range(_LOCK_TRIES):
        # O_NONBLOCK: a pipe or device in the file's place must not hold up the opening.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
        try:
            if _lock(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise LeaseHeld(str(path), "others who keep replacing the file")


def _lock(descriptor: int, path: Path) -> bool:
    """Lock the open file; False when it is no longer the one at `path`."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "a lock file must be a regular file", str(path))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LeaseHeld(str(path), "another holder of the file lock") from None
    try:
        current = path.lstat()
    except FileNotFoundError:
        return False
    if (current.st_dev, current.st_ino) != (status.st_dev, status.st_ino):
        return False
    if stat.S_IMODE(status.st_mode) != 0o600 and status.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)
    return True
