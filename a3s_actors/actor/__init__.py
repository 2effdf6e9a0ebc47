"""Actors for trio: lifetimes, mailboxes, leases and the one seam for blocking work.

The lowest layer: it imports nothing of this project and knows nothing of memory. `docs/actor.md` is its guide.

- `lifecycle`: the states of a request and of an actor, as tables; pure.
- `errors`: every way it says no.
- `mailbox`: a bounded queue of requests with one consumer.
- `lifetime`: a serving task with a bounded, reported end.
- `lease`: single owners of resources, in a process and between processes.
- `blocking`: threads, or inline for tests on a virtual clock.
- `events`: warnings as structured events.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a3s_actors.actor.blocking import BlockingRunner, InlineRunner, ThreadRunner, check_cancelled
    from a3s_actors.actor.errors import (
        ActorClosed,
        ActorError,
        ActorFailed,
        EndOfMailbox,
        IllegalTransition,
        LeaseHeld,
        MailboxFull,
    )
    from a3s_actors.actor.lease import FileLease, Lease, LeaseRegistry, hold_file_lock
    from a3s_actors.actor.lifecycle import LifeState, RequestState
    from a3s_actors.actor.lifetime import CloseReport, Lifetime, open_actor
    from a3s_actors.actor.mailbox import Mailbox, MailboxStatistics, Request

__all__ = [
    "ActorClosed",
    "ActorError",
    "ActorFailed",
    "BlockingRunner",
    "CloseReport",
    "EndOfMailbox",
    "FileLease",
    "IllegalTransition",
    "InlineRunner",
    "Lease",
    "LeaseHeld",
    "LeaseRegistry",
    "LifeState",
    "Lifetime",
    "Mailbox",
    "MailboxFull",
    "MailboxStatistics",
    "Request",
    "RequestState",
    "ThreadRunner",
    "check_cancelled",
    "hold_file_lock",
    "open_actor",
]

_HOMES = {
    "blocking": ("BlockingRunner", "InlineRunner", "ThreadRunner", "check_cancelled"),
    "lease": ("FileLease", "Lease", "LeaseRegistry", "hold_file_lock"),
    "lifecycle": ("LifeState", "RequestState"),
    "lifetime": ("CloseReport", "Lifetime", "open_actor"),
    "mailbox": ("Mailbox", "MailboxStatistics", "Request"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "errors")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
