"""What the chat prints. Lines of the model begin with "< " or two spaces, lines of the program with "· "."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from a3s_actors.agent.extraction import ExtractionReport
from a3s_actors.agent.reports import ContextReport, IncludedItem, ProviderOutcome
from a3s_actors.agent.runs import RunRecord
from a3s_actors.cli.output import brief_id, one_line, safe, say
from a3s_actors.recall.admission import RemovalReason, RemovedItem
from a3s_actors.recall.reading import RecallHit

__all__ = ["ReplyPrinter", "clipped", "note", "tell_context", "tell_extraction", "tell_interrupted", "why_removed"]

_WIDTH: Final = 100
_REASONS: Final = {
    RemovalReason.NOT_RECALLED: "it was not recalled in this turn",
    RemovalReason.CHANGED: "its text or revision is not what was recalled",
    RemovalReason.REPEATED: "it was there already",
    RemovalReason.NOT_ADMISSIBLE: "it was changed or withdrawn meanwhile",
    RemovalReason.CONFLICT: "its audit record says something else",
    RemovalReason.STORAGE: "its audit record could not be stored",
    RemovalReason.NO_HOST_TIME: "this machine has no time",
    RemovalReason.NO_IDENTITY: "the turn has no name",
    RemovalReason.CLOCK_BEHIND: "this machine's clock is before the memory's time",
}


def note(text: str, *, style: str = "dim") -> None:
    """Print a line of the program."""
    say(f"· {text}", style=style)


def clipped(text: str) -> str:
    """Return a text safe, on one line, and not longer than a line."""
    line = one_line(text)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


class ReplyPrinter:
    """Prints a reply as it comes. What the model writes cannot drive the terminal, nor pass for the program's lines."""

    def __init__(self) -> None:
        self._begun = False
        self._open = False

    def add(self, text: str) -> None:
        """Print the next piece."""
        out = []
        for part in safe(text).splitlines(keepends=True):
            if not self._open:
                out.append("  " if self._begun else "< ")
            self._begun = True
            self._open = not part.endswith("\n")
            out.append(part)
        sys.stdout.write("".join(out))
        sys.stdout.flush()

    def end(self) -> None:
        """End the line, where one is begun."""
        if self._open:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._open = False


def how_found(hit: RecallHit) -> str:
    """Return how a memory was found: score, channel, and what it is related to."""
    origin = "" if hit.related_from is None else f" from {brief_id(hit.related_from)}"
    return f"{hit.score:.2f} {hit.channel.value}{origin}"


def why_removed(item: RemovedItem) -> str:
    """Return why a memory was left out, with its code."""
    return f"{item.reason.value}: {_REASONS[item.reason]}"


def tell_context(report: ContextReport) -> None:
    """Print what was admitted to a context and why, and what was not."""
    for item in report.items:
        note(f"admitted  {_item(item)}")
    for removed in report.removed:
        note(f"removed   {brief_id(removed.node_id)}  {why_removed(removed)}", style="yellow")
    for line in reductions(report):
        note(f"reduced   {line}", style="yellow")


def _item(item: IncludedItem) -> str:
    hit = item.hit
    if hit is None:
        return f"{item.relevance:.2f} {one_line(item.source)}  {brief_id(item.id)}"
    return f"{how_found(hit)}  {brief_id(hit.node_id)} revision {hit.node_revision}  {clipped(hit.content)}"


def reductions(report: ContextReport) -> Iterable[str]:
    """Yield why a context holds less than it might."""
    for provider in report.providers:
        if provider.outcome is not ProviderOutcome.USED:
            detail = f" ({provider.detail})" if provider.detail else ""
            yield f"{one_line(provider.name)} {provider.outcome.value}{detail}: the turn goes on without it"
    if report.left_out:
        yield f"{report.left_out} recalled but left out: the context's bound of items or tokens is reached"


def tell_extraction(report: ExtractionReport) -> None:
    """Print what a turn left behind, if anything."""
    refused = ", ".join(f"{count} {reason.value}" for reason, count in report.refused.items() if count)
    if report.error:
        note(f"nothing proposed: the extraction failed ({report.error})", style="yellow")
    elif report.accepted:
        count = len(report.accepted)
        more = f"; refused: {refused}" if refused else ""
        note(f"{count} candidate{'' if count == 1 else 's'} proposed{more}; /review decides", style="yellow")
    elif refused:
        note(f"nothing proposed; refused: {refused}")


def tell_interrupted(run: RunRecord) -> None:
    """Print that a run's process ended before the run did, and how far it had come."""
    context = run.contexts[-1] if run.contexts else None
    if context is None or not context.dispatched:
        fate = "the model was surely not called"
    else:
        fate = f"the model may have been called, with {len(context.admitted)} memories"
    note(f"interrupted: run {one_line(run.run_id)} did not end before its process did; {fate}", style="yellow")
