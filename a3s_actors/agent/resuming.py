"""What a resumed session knows about the run that its process did not finish. Pure."""

from __future__ import annotations

from a3s_actors.agent.runs import ContextRecord, RunRecord, RunState, RunStep
from a3s_actors.agent.store import RunMark, RunMarkKind, StoredSession
from a3s_actors.memory.timestamps import Timestamp

__all__ = ["recovered_runs"]


def recovered_runs(stored: StoredSession, now: Timestamp | None) -> tuple[RunRecord, ...]:
    """Return the runs of a stored session; those that were going on are interrupted.

    A context of an interrupted run whose `dispatched` is False was surely not sent to the model, though memories may
    have been admitted to it; one whose `dispatched` is True may have been.
    """
    runs = {run.run_id: run for run in stored.snapshot.runs}
    for mark in stored.marks:
        run = runs.get(mark.run_id)
        if run is None or run.state is not RunState.RUNNING:
            runs.pop(mark.run_id, None)
            run = RunRecord(run_id=mark.run_id)
        runs[mark.run_id] = _marked(run, mark)
    return tuple(
        run.after(RunStep.INTERRUPT, now, "process ended") if run.state is RunState.RUNNING else run
        for run in runs.values()
    )


def _marked(run: RunRecord, mark: RunMark) -> RunRecord:
    context = ContextRecord(context_id=mark.context_id, admitted=mark.admitted, removed=mark.removed)
    if mark.kind is RunMarkKind.ADMITTING:
        return run.with_context(context)
    planned = bool(run.contexts) and not run.contexts[-1].dispatched and run.contexts[-1].context_id == mark.context_id
    run = run.with_last_context(context) if planned else run.with_context(context)
    return run.dispatched()
