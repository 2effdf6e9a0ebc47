"""Runs: the life of each send as a table, its record, and the log that keeps the last ones. Pure; no clock, no I/O."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable

import attrs

from a3s_actors.actor.lifecycle import TransitionTable
from a3s_actors.agent.errors import RunIdentityConflict
from a3s_actors.agent.model import ModelUsage
from a3s_actors.memory._checks import check_text, check_whole
from a3s_actors.memory.timestamps import Timestamp

__all__ = ["RUN", "ContextRecord", "RunEvent", "RunLog", "RunRecord", "RunState", "RunStep"]


class RunState(enum.Enum):
    """Where a run is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # its process ended before it did; seen when the session is resumed


class RunStep(enum.Enum):
    """What ends a run."""

    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    INTERRUPT = "interrupt"


RUN: TransitionTable[RunState, RunStep] = TransitionTable(
    "run",
    {
        RunState.RUNNING: {
            RunStep.COMPLETE: RunState.COMPLETED,
            RunStep.FAIL: RunState.FAILED,
            RunStep.CANCEL: RunState.CANCELLED,
            RunStep.INTERRUPT: RunState.INTERRUPTED,
        },
        RunState.COMPLETED: {},
        RunState.FAILED: {},
        RunState.CANCELLED: {},
        RunState.INTERRUPTED: {},
    },
)


@attrs.frozen(kw_only=True)
class ContextRecord:
    """One final model context of a run: which memories were admitted to it, and whether it went to the model.

    Attributes:
        context_id: the context's opaque id; None when nothing of durable memory was to enter it.
        admitted: id and revision of each memory; for an interrupted context those that were about to be admitted.
        removed: how many memories were taken out because they could not be admitted.
        dispatched: whether the model was called with it. After a crash: False means that it surely was not.
    """

    context_id: str | None
    admitted: tuple[tuple[str, int], ...] = ()
    removed: int = 0
    dispatched: bool = False


@attrs.frozen(kw_only=True)
class RunEvent:
    """Something that happened in a run, without its texts.

    Attributes:
        name: "context", "model", "tool", "extraction", … : a stable name.
        detail: a bounded code or name, such as a tool's name or an error's class.
        at: the host's time; None when it had none.
    """

    name: str
    detail: str = ""
    at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class RunRecord:
    """What is kept of a run.

    Attributes:
        run_id: its name.
        state: where it is.
        started_at, ended_at: the host's times.
        usage: what its model calls cost together.
        model_calls: how many there were.
        contexts: its final model contexts, in order.
        events: what happened, the oldest first; bounded.
        error: the class of the error that ended it, or "".
    """

    run_id: str
    state: RunState = RunState.RUNNING
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    usage: ModelUsage = attrs.field(factory=ModelUsage)
    model_calls: int = 0
    contexts: tuple[ContextRecord, ...] = ()
    events: tuple[RunEvent, ...] = ()
    error: str = ""

    def after(self, step: RunStep, at: Timestamp | None, error: str = "") -> RunRecord:
        """Return the record of the ended run.

        Raises:
            IllegalTransition: it has ended before.
        """
        return attrs.evolve(self, state=RUN.after(self.state, step), ended_at=at, error=error)

    def with_event(self, event: RunEvent, limit: int) -> RunRecord:
        """Return the record with one more event; beyond `limit` the oldest ones go."""
        return attrs.evolve(self, events=(*self.events, event)[-limit:])

    def with_context(self, context: ContextRecord) -> RunRecord:
        """Return the record with one more context."""
        return attrs.evolve(self, contexts=(*self.contexts, context))

    def with_last_context(self, context: ContextRecord) -> RunRecord:
        """Return the record with another last context."""
        return attrs.evolve(self, contexts=(*self.contexts[:-1], context))

    def dispatched(self) -> RunRecord:
        """Return the record with its last context marked as sent to the model."""
        *before, last = self.contexts
        return attrs.evolve(
            self, contexts=(*before, attrs.evolve(last, dispatched=True)), model_calls=self.model_calls + 1
        )


class RunLog:
    """The last runs of a session, first in, first out. Synchronous: each method is atomic among tasks.

    Args:
        session_id: whose runs; for errors.
        limit: how many runs are retained, at least 1.
        runs: what is retained at first, the oldest first.
    """

    def __init__(self, session_id: str, limit: int, runs: Iterable[RunRecord] = ()) -> None:
        check_whole("maxRetainedRuns", limit, 1)
        self._session_id = session_id
        self._limit = limit
        self._runs: OrderedDict[str, RunRecord] = OrderedDict((run.run_id, run) for run in runs)
        self._trim()

    def reserve(self, run: RunRecord) -> None:
        """Retain a new run, and let the oldest go beyond the limit.

        Raises:
            RunIdentityConflict: a run of that id is retained. It is untouched, and nothing was let go.
        """
        check_text("run.id", run.run_id, 256)
        if run.run_id in self._runs:
            raise RunIdentityConflict(self._session_id, run.run_id)
        self._runs[run.run_id] = run
        self._trim()

    def replace(self, run: RunRecord) -> None:
        """Take a newer record of a retained run; one that is retained no more stays away."""
        if run.run_id in self._runs:
            self._runs[run.run_id] = run

    def get(self, run_id: str) -> RunRecord | None:
        """Return a retained run, or None."""
        return self._runs.get(run_id)

    def all(self) -> tuple[RunRecord, ...]:
        """Return the retained runs, the oldest first."""
        return tuple(self._runs.values())

    def _trim(self) -> None:
        while len(self._runs) > self._limit:
            self._runs.popitem(last=False)
