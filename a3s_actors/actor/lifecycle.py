"""The life cycles of a request and of an actor, as tables. Pure: no trio, no clock, no I/O.

An event that the table does not list for a state raises `IllegalTransition` and changes nothing. The tables in
`docs/actor.md` are `TransitionTable.markdown()` of these.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from a3s_actors.actor.errors import IllegalTransition

__all__ = ["LIFE", "REQUEST", "LifeEvent", "LifeState", "RequestEvent", "RequestState", "TransitionTable"]

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class TransitionTable(Generic[S, E]):
    """Which event leads from which state to which; every state is listed, a final one with no events."""

    def __init__(self, machine: str, rows: Mapping[S, Mapping[E, S]]) -> None:
        self.machine = machine
        self._rows: Mapping[S, Mapping[E, S]] = MappingProxyType(
            {state: MappingProxyType(dict(row)) for state, row in rows.items()}
        )

    def after(self, state: S, event: E) -> S:
        """Return the state that follows `event` in `state`.

        Raises:
            IllegalTransition: The table has no such row.
        """
        following = self._rows[state].get(event)
        if following is None:
            raise IllegalTransition(self.machine, str(state.value), str(event.value))
        return following

    def is_final(self, state: S) -> bool:
        """Whether nothing follows `state`."""
        return not self._rows[state]

    def __iter__(self) -> Iterator[tuple[S, E, S]]:
        """Yield every (state, event, next state), in the table's order."""
        for state, row in self._rows.items():
            for event, following in row.items():
                yield state, event, following

    def markdown(self) -> str:
        """Return the table for documentation; a final state has one row without an event."""
        lines = ["| state | event | next state |", "| --- | --- | --- |"]
        lines += [f"| {s.value} | {e.value} | {n.value} |" for s, e, n in self]
        lines += [f"| {s.value} | | (final) |" for s in self._rows if self.is_final(s)]
        return "\n".join(lines)


class RequestState(enum.Enum):
    """Where a request is. Waiting for space in the mailbox counts as queued: nothing has happened yet."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    WITHDRAWN = "withdrawn"


class RequestEvent(enum.Enum):
    """What happens to a request."""

    START = "start"  # the consumer takes it
    SUCCEED = "succeed"  # the consumer answers with a value
    FAIL = "fail"  # the consumer answers with an exception
    WITHDRAW = "withdraw"  # the caller is cancelled before the start
    EXPIRE = "expire"  # the caller's deadline has passed before the start
    CLOSE = "close"  # the mailbox ends


REQUEST: TransitionTable[RequestState, RequestEvent] = TransitionTable(
    "request",
    {
        RequestState.QUEUED: {
            RequestEvent.START: RequestState.RUNNING,
            RequestEvent.WITHDRAW: RequestState.WITHDRAWN,
            RequestEvent.EXPIRE: RequestState.WITHDRAWN,
            RequestEvent.CLOSE: RequestState.WITHDRAWN,
        },
        RequestState.RUNNING: {
            RequestEvent.SUCCEED: RequestState.DONE,
            RequestEvent.FAIL: RequestState.DONE,
            RequestEvent.CLOSE: RequestState.DONE,
        },
        RequestState.DONE: {},
        RequestState.WITHDRAWN: {},
    },
)


class LifeState(enum.Enum):
    """Where an actor is in its life."""

    OPENING = "opening"
    SERVING = "serving"
    CLOSING = "closing"
    CLOSED = "closed"


class LifeEvent(enum.Enum):
    """What happens to an actor."""

    START = "start"  # the block is entered
    CLOSE = "close"  # the block is left, close() is called, or the serving task returned
    FAIL = "fail"  # the serving task raised
    END = "end"  # every waiter is woken and the report is written


LIFE: TransitionTable[LifeState, LifeEvent] = TransitionTable(
    "life",
    {
        LifeState.OPENING: {
            LifeEvent.START: LifeState.SERVING,
            LifeEvent.CLOSE: LifeState.CLOSING,
            LifeEvent.FAIL: LifeState.CLOSING,
        },
        LifeState.SERVING: {LifeEvent.CLOSE: LifeState.CLOSING, LifeEvent.FAIL: LifeState.CLOSING},
        LifeState.CLOSING: {LifeEvent.END: LifeState.CLOSED},
        LifeState.CLOSED: {},
    },
)
