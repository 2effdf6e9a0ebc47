"""What was seen of the sessions' files, so that none is read whole again before each save."""

from __future__ import annotations

import os
from typing import Final

import attrs

from a3s_backends.file_sessions.disk import open_regular
from a3s_backends.file_sessions.format import Header
from a3s_backends.file_sessions.reading import (
    Identity,
    SessionPaths,
    identity_of,
    is_missing,
    read_at,
    read_start,
    read_whole,
)

__all__ = ["Known", "KnownFiles"]

_MAX_KNOWN: Final = 4096


@attrs.define(eq=False)
class Known:
    """A session's current file, when it was whole.

    Attributes:
        identity: which file, and that it has not been changed.
        header: what it says.
        durable: whether its name is known to be on the disk; who made it may have been killed before it synced that.
    """

    identity: Identity
    header: Header
    durable: bool


class KnownFiles:
    """The files that were seen last. Several threads may use it: each step is one of the dictionary's."""

    def __init__(self) -> None:
        self._files: dict[str, Known] = {}

    def get(self, paths: SessionPaths) -> Known | None:
        """Return what was seen of a session."""
        return self._files.get(paths.name)

    def forget(self, paths: SessionPaths) -> None:
        """Forget a session."""
        self._files.pop(paths.name, None)

    def saw(self, paths: SessionPaths, identity: Identity, header: Header, *, durable: bool = False) -> None:
        """Remember a session's file that is whole; what is known to be durable stays so."""
        known = self._files.get(paths.name)
        if durable or known is None or known.identity != identity or known.header != header:
            if len(self._files) >= _MAX_KNOWN:
                self._files.clear()
            self._files[paths.name] = Known(identity, header, durable)

    def stored(self, paths: SessionPaths, *, whole: bool) -> Header | None:
        """Return the header of a session's current file; None when there is no session.

        Args:
            paths: whose.
            whole: whether a file that was not seen before is read and checked to its end.

        Raises:
            SessionStoreCorrupt: it is not what was written.
            OSError: it cannot be read.
        """
        try:
            descriptor = open_regular(paths.current)
        except FileNotFoundError:
            if is_missing(paths):
                return None
            descriptor = open_regular(paths.current)
        try:
            identity = identity_of(descriptor)
            known = self._files.get(paths.name)
            # A file made shortly after another may have its number, size and times; its header it cannot have.
            if (
                known is not None
                and known.identity == identity
                and read_at(descriptor, 0, len(known.header.line)) == known.header.line
            ):
                return known.header
            if not whole:
                return read_start(descriptor, paths)
            header, _body = read_whole(descriptor, paths)
            self.saw(paths, identity, header)
            return header
        finally:
            os.close(descriptor)
