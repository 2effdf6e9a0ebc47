"""What a session tells its host: replies, events of a stream, reports of contexts and of its end. Values only."""

from __future__ import annotations

import enum
from typing import TypeAlias

import attrs

from a3s_actors.agent.model import FinishReason, ModelUsage
from a3s_actors.recall.admission import RemovedItem
from a3s_actors.recall.reading import RecallHit

__all__ = [
    "AgentCloseReport",
    "ContextReport",
    "IncludedItem",
    "ProviderOutcome",
    "ProviderReport",
    "SessionCloseReport",
    "SessionStatistics",
    "TurnCompleted",
    "TurnContext",
    "TurnEvent",
    "TurnReply",
    "TurnStarted",
    "TurnText",
    "TurnTool",
]


class ProviderOutcome(enum.Enum):
    """What became of a context provider's answer."""

    USED = "used"
    FAILED = "failed"
    LATE = "late"
    MALFORMED = "malformed"


@attrs.frozen(kw_only=True)
class ProviderReport:
    """How a context provider did.

    Attributes:
        name: the provider's.
        outcome: what became of its answer.
        items: how many it gave.
        detail: the class of its error, or "".
    """

    name: str
    outcome: ProviderOutcome
    items: int = 0
    detail: str = ""


@attrs.frozen(kw_only=True)
class IncludedItem:
    """An item that entered the model's input.

    Attributes:
        id, source: of the item.
        relevance: what it was ranked by.
        hit: how a durable memory was found, and its exact revision; None for other items.
    """

    id: str
    source: str
    relevance: float
    hit: RecallHit | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class ContextReport:
    """What a final context holds, and why not more.

    Attributes:
        context_id: the opaque id that its admissions have; None when no durable memory was to enter it.
        items: what entered it, in order. A durable memory among them has its audit record.
        removed: durable memories that could not be admitted, with the reasons.
        providers: how each provider did.
        duplicates: how many items were there twice.
        left_out: how many did not fit.
        tokens: what the assembled items counted, before admission.
        clamped: ids of memories whose time was taken in place of the host's, which was slightly behind it.
    """

    context_id: str | None = None
    items: tuple[IncludedItem, ...] = ()
    removed: tuple[RemovedItem, ...] = ()
    providers: tuple[ProviderReport, ...] = ()
    duplicates: int = 0
    left_out: int = 0
    tokens: int = 0
    clamped: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TurnReply:
    """The answer of a turn.

    Attributes:
        run_id: its run.
        content: the model's text.
        finish_reason: why the model stopped.
        usage: what the turn's model calls cost together.
        tool_rounds: how often tools were called.
        context: the last final context.
    """

    run_id: str
    content: str = attrs.field(repr=False)
    finish_reason: FinishReason
    usage: ModelUsage
    tool_rounds: int
    context: ContextReport


@attrs.frozen
class TurnStarted:
    """A turn has begun."""

    run_id: str


@attrs.frozen
class TurnContext:
    """A final context was admitted and goes to the model."""

    report: ContextReport


@attrs.frozen
class TurnText:
    """A piece of the model's text."""

    text: str = attrs.field(repr=False)


@attrs.frozen
class TurnTool:
    """A tool was called; `outcome` is "ok" or a bounded code of what went wrong."""

    name: str
    outcome: str


@attrs.frozen
class TurnCompleted:
    """The turn is done and, where the session has a store, saved. The last event of a stream."""

    reply: TurnReply


TurnEvent: TypeAlias = TurnStarted | TurnContext | TurnText | TurnTool | TurnCompleted


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """A session at one moment.

    Attributes:
        waiting_turns: how many callers wait.
        turn_running: whether a turn is going on.
        extractions_pending: how many finished turns wait for their extraction, the one going on included.
        extractions_skipped: how many turns were not extracted because too many waited.
    """

    waiting_turns: int
    turn_running: bool
    extractions_pending: int
    extractions_skipped: int


@attrs.frozen(kw_only=True)
class SessionCloseReport:
    """How a session ended.

    Attributes:
        session_id: its name.
        joined: everything settled in time.
        cancelled: something had to be cancelled, and ended then.
        aborted: something ignored its cancellation and had to be left behind; leaving the block waits for it.
        extractions_unfinished: how many turns lost their extraction.
        saved: whether its last state is in the store; None without a store.
        elapsed: seconds.
    """

    session_id: str
    joined: bool
    cancelled: bool
    aborted: bool
    extractions_unfinished: int
    saved: bool | None
    elapsed: float


@attrs.frozen(kw_only=True)
class AgentCloseReport:
    """How an agent ended: the reports of the sessions that were open then.

    Attributes:
        sessions: one for each.
        unfinished: ids of sessions that did not end within the agent's bound.
    """

    sessions: tuple[SessionCloseReport, ...] = ()
    unfinished: tuple[str, ...] = ()
