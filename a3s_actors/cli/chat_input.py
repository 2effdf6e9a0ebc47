"""Lines of standard input for the chat: read without blocking the event loop, and given up at any moment.

A pipe, a socket and a terminal are waited for in the event loop itself; no thread is left behind that still reads when
the chat ends. A regular file never makes anybody wait.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import Final

import trio

from a3s_actors.cli.running import BadInput

__all__ = ["Lines"]

_CHUNK: Final = 64 * 1024
_MAX_LINE: Final = 2 << 20


class Lines:
    """Standard input, line by line.

    Attributes:
        from_terminal: whether a person types them.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ended = False
        self._fd: int | None = None
        self._waits = False
        self.from_terminal = False
        if sys.stdin is None:
            self._ended = True
            return
        try:
            self._fd = sys.stdin.fileno()
        except (io.UnsupportedOperation, ValueError):  # an object in memory in its place
            self._buffer += sys.stdin.buffer.read()
            self._ended = True
            return
        self.from_terminal = os.isatty(self._fd)
        mode = os.fstat(self._fd).st_mode
        self._waits = self.from_terminal or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

    async def next(self) -> str | None:
        """Return the next line without its end, or None when there is none.

        Raises:
            BadInput: a line is longer than 2 MiB.

        Cancellation: a checkpoint; what was read of a line is kept, and the next call goes on with it.
        """
        await trio.lowlevel.checkpoint()
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if end:
                self._buffer = rest
                return line.removesuffix(b"\r").decode("utf-8", "replace")
            if len(self._buffer) > _MAX_LINE:
                raise BadInput(f"a line of the input is longer than {_MAX_LINE} bytes; split it")
            if self._ended:
                self._buffer.clear()
                return line.decode("utf-8", "replace") if line else None
            await self._more()

    def forget(self) -> None:
        """Forget what was typed of a line that is not finished."""
        del self._buffer[self._buffer.rfind(b"\n") + 1 :]

    async def _more(self) -> None:
        assert self._fd is not None
        try:
            if self._waits:
                await trio.lowlevel.wait_readable(self._fd)
                data = os.read(self._fd, _CHUNK)
            else:
                data = await trio.to_thread.run_sync(os.read, self._fd, _CHUNK)
        except BlockingIOError:
            return  # somebody else was faster, or the terminal woke us for nothing
        except OSError:
            data = b""  # the terminal is gone
        # At a terminal, Ctrl-D ends the input only at the beginning of a line.
        if not data and not (self.from_terminal and self._buffer):
            self._ended = True
        self._buffer += data
