"""Errors of the actor library: one tree, named by what the caller can do about them.

`ActorClosed` and `ActorFailed`: the actor is gone, open another. `LeaseHeld` and `MailboxFull`: somebody else was
first, try again later. `IllegalTransition`: a bug in the code that drives the state machine.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import attrs

__all__ = [
    "ActorClosed",
    "ActorError",
    "ActorFailed",
    "EndOfMailbox",
    "IllegalTransition",
    "LeaseHeld",
    "MailboxFull",
    "own_copy",
]

E = TypeVar("E", bound=Exception)

_error = attrs.define(eq=False, slots=False)


class ActorError(Exception):
    """Base of all errors of `a3s_actors.actor`."""


@_error
class ActorClosed(ActorError):
    """The actor has ended or takes no more work.

    Attributes:
        actor: The actor's name.
        reason: Why it ended: "closed", "ended", "failed" or what the owner said.
        started: False when the request was never started, so that nothing happened; True when the consumer had
            it in hand and its outcome is unknown to the caller.
    """

    actor: str
    reason: str = "closed"
    started: bool = False

    def __str__(self) -> str:
        fate = "the outcome of the request is unknown" if self.started else "the request was not started"
        return f"actor {self.actor}: {self.reason}; {fate}; open the actor again"


@_error
class ActorFailed(ActorClosed):
    """The actor's serving task ended with an exception, which is this error's `__cause__`."""

    reason: str = "failed"


@_error
class EndOfMailbox(ActorClosed):
    """For the consumer only: the mailbox has ended and no request is left to take or to answer.

    A serving function may let it out: `open_actor` takes it as the normal end.
    """


@_error
class LeaseHeld(ActorError):
    """Somebody else holds the lease.

    Attributes:
        resource: What was asked for.
        owner: Who holds it, as far as it is known.
    """

    resource: str
    owner: str

    def __str__(self) -> str:
        return f"lease on {self.resource} is held by {self.owner}; wait until it is released"


@_error
class MailboxFull(ActorError):
    """A call that does not wait for space found none.

    Attributes:
        actor: The actor's name.
        capacity: How many requests its mailbox queues.
    """

    actor: str
    capacity: int

    def __str__(self) -> str:
        return f"actor {self.actor}: the mailbox is full (capacity {self.capacity}); ask later or wait for space"


@_error
class IllegalTransition(ActorError):
    """A state machine was given an event that its state does not allow: a bug of the driving code.

    The machine has not changed.

    Attributes:
        machine: Which state machine.
        state: Its state.
        event: The event that is not allowed there.
    """

    machine: str
    state: str
    event: str

    def __str__(self) -> str:
        return f"{self.machine}: event {self.event} is not allowed in state {self.state}"


def own_copy(exception: E) -> E:
    """Return a copy of `exception` that one waiter may raise while others raise theirs.

    Raising an exception object appends to its traceback and may set its `__context__`; one object raised in
    several tasks collects frames of all of them. The copy has the same type, arguments, attributes, notes, cause
    and context, and starts from the traceback the original has now.

    An exception whose constructor cannot rebuild it from `args` is returned itself: a mixed traceback is less
    bad than a wrong message.
    """
    try:
        clone = copy.copy(exception)
        faithful = type(clone) is type(exception) and [id(a) for a in clone.args] == [id(a) for a in exception.args]
    except Exception:  # noqa: BLE001 - the constructor is foreign code
        return exception
    if not faithful or clone is exception:
        return exception
    clone.__cause__ = exception.__cause__
    clone.__context__ = exception.__context__
    clone.__suppress_context__ = exception.__suppress_context__
    return clone.with_traceback(exception.__traceback__)
