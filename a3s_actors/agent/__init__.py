"""Agents, sessions and runs on trio, with a memory that is verified, admitted and audited.

Modules, each importing only those above it: errors / model / host / framing / redaction, runs / snapshot / store,
agent_memory / context / tools, extraction / reports, gathering / options, resuming / stream, turn / extracting /
saving, session, agent. `open_agent` is the door.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a3s_actors.agent.agent import Agent as Agent
    from a3s_actors.agent.agent import open_agent as open_agent
    from a3s_actors.agent.agent_memory import AgentMemory as AgentMemory
    from a3s_actors.agent.agent_memory import AgentMemoryWeights as AgentMemoryWeights
    from a3s_actors.agent.agent_memory import MemoryItem as MemoryItem
    from a3s_actors.agent.agent_memory import MemoryItemType as MemoryItemType
    from a3s_actors.agent.agent_memory import PrunePolicy as PrunePolicy
    from a3s_actors.agent.agent_memory import ScoredItem as ScoredItem
    from a3s_actors.agent.context import AssembledContext as AssembledContext
    from a3s_actors.agent.context import ContextItem as ContextItem
    from a3s_actors.agent.context import ContextPolicy as ContextPolicy
    from a3s_actors.agent.context import ContextProvider as ContextProvider
    from a3s_actors.agent.context import ContextRequest as ContextRequest
    from a3s_actors.agent.context import assemble as assemble
    from a3s_actors.agent.context import count_tokens as count_tokens
    from a3s_actors.agent.context import normalised as normalised
    from a3s_actors.agent.errors import AgentClosed as AgentClosed
    from a3s_actors.agent.errors import AgentError as AgentError
    from a3s_actors.agent.errors import ModelError as ModelError
    from a3s_actors.agent.errors import ModelProtocolError as ModelProtocolError
    from a3s_actors.agent.errors import ModelRefused as ModelRefused
    from a3s_actors.agent.errors import ModelUnavailable as ModelUnavailable
    from a3s_actors.agent.errors import RunIdentityConflict as RunIdentityConflict
    from a3s_actors.agent.errors import SessionClosed as SessionClosed
    from a3s_actors.agent.errors import SessionExists as SessionExists
    from a3s_actors.agent.errors import SessionInUse as SessionInUse
    from a3s_actors.agent.errors import SessionNotFound as SessionNotFound
    from a3s_actors.agent.errors import SessionNotSaved as SessionNotSaved
    from a3s_actors.agent.errors import SessionStoreConflict as SessionStoreConflict
    from a3s_actors.agent.errors import SessionStoreCorrupt as SessionStoreCorrupt
    from a3s_actors.agent.errors import SessionStoreError as SessionStoreError
    from a3s_actors.agent.errors import SessionStoreUnavailable as SessionStoreUnavailable
    from a3s_actors.agent.errors import ToolRoundsExceeded as ToolRoundsExceeded
    from a3s_actors.agent.errors import TurnReentered as TurnReentered
    from a3s_actors.agent.extraction import ExtractionPolicy as ExtractionPolicy
    from a3s_actors.agent.extraction import ExtractionReport as ExtractionReport
    from a3s_actors.agent.extraction import MemoryProposal as MemoryProposal
    from a3s_actors.agent.extraction import ProposalRefusal as ProposalRefusal
    from a3s_actors.agent.gathering import AGENT_MEMORY_SOURCE as AGENT_MEMORY_SOURCE
    from a3s_actors.agent.host import HostEnv as HostEnv
    from a3s_actors.agent.host import random_id as random_id
    from a3s_actors.agent.model import FinishReason as FinishReason
    from a3s_actors.agent.model import ModelClient as ModelClient
    from a3s_actors.agent.model import ModelMessage as ModelMessage
    from a3s_actors.agent.model import ModelReply as ModelReply
    from a3s_actors.agent.model import ModelRequest as ModelRequest
    from a3s_actors.agent.model import ModelTextDelta as ModelTextDelta
    from a3s_actors.agent.model import ModelUsage as ModelUsage
    from a3s_actors.agent.model import RequestPurpose as RequestPurpose
    from a3s_actors.agent.model import Role as Role
    from a3s_actors.agent.model import StreamingModelClient as StreamingModelClient
    from a3s_actors.agent.model import ToolCall as ToolCall
    from a3s_actors.agent.model import ToolDefinition as ToolDefinition
    from a3s_actors.agent.options import SessionOptions as SessionOptions
    from a3s_actors.agent.redaction import MASK as MASK
    from a3s_actors.agent.redaction import Redacted as Redacted
    from a3s_actors.agent.redaction import Redactor as Redactor
    from a3s_actors.agent.reports import AgentCloseReport as AgentCloseReport
    from a3s_actors.agent.reports import ContextReport as ContextReport
    from a3s_actors.agent.reports import IncludedItem as IncludedItem
    from a3s_actors.agent.reports import ProviderOutcome as ProviderOutcome
    from a3s_actors.agent.reports import ProviderReport as ProviderReport
    from a3s_actors.agent.reports import SessionCloseReport as SessionCloseReport
    from a3s_actors.agent.reports import SessionStatistics as SessionStatistics
    from a3s_actors.agent.reports import TurnCompleted as TurnCompleted
    from a3s_actors.agent.reports import TurnContext as TurnContext
    from a3s_actors.agent.reports import TurnEvent as TurnEvent
    from a3s_actors.agent.reports import TurnReply as TurnReply
    from a3s_actors.agent.reports import TurnStarted as TurnStarted
    from a3s_actors.agent.reports import TurnText as TurnText
    from a3s_actors.agent.reports import TurnTool as TurnTool
    from a3s_actors.agent.runs import RUN as RUN
    from a3s_actors.agent.runs import ContextRecord as ContextRecord
    from a3s_actors.agent.runs import RunEvent as RunEvent
    from a3s_actors.agent.runs import RunLog as RunLog
    from a3s_actors.agent.runs import RunRecord as RunRecord
    from a3s_actors.agent.runs import RunState as RunState
    from a3s_actors.agent.runs import RunStep as RunStep
    from a3s_actors.agent.session import AgentSession as AgentSession
    from a3s_actors.agent.snapshot import SESSION_SCHEMA as SESSION_SCHEMA
    from a3s_actors.agent.snapshot import SessionSnapshot as SessionSnapshot
    from a3s_actors.agent.store import RunMark as RunMark
    from a3s_actors.agent.store import RunMarkKind as RunMarkKind
    from a3s_actors.agent.store import SessionStore as SessionStore
    from a3s_actors.agent.store import StoredSession as StoredSession
    from a3s_actors.agent.stream import TurnStream as TurnStream
    from a3s_actors.agent.tools import MAX_TOOL_RESULT_BYTES as MAX_TOOL_RESULT_BYTES
    from a3s_actors.agent.tools import Tool as Tool
    from a3s_actors.agent.tools import Toolbox as Toolbox
    from a3s_actors.agent.tools import ToolInvocation as ToolInvocation

_HOMES = {
    "agent": "Agent open_agent",
    "agent_memory": "AgentMemory AgentMemoryWeights MemoryItem MemoryItemType PrunePolicy ScoredItem",
    "context": (
        "AssembledContext ContextItem ContextPolicy ContextProvider ContextRequest assemble count_tokens normalised"
    ),
    "errors": (
        "AgentClosed AgentError ModelError ModelProtocolError ModelRefused ModelUnavailable "
        "RunIdentityConflict SessionClosed SessionExists SessionInUse SessionNotFound SessionNotSaved "
        "SessionStoreConflict SessionStoreCorrupt SessionStoreError SessionStoreUnavailable "
        "ToolRoundsExceeded TurnReentered"
    ),
    "extraction": "ExtractionPolicy ExtractionReport MemoryProposal ProposalRefusal",
    "gathering": "AGENT_MEMORY_SOURCE",
    "host": "HostEnv random_id",
    "model": (
        "FinishReason ModelClient ModelMessage ModelReply ModelRequest ModelTextDelta ModelUsage "
        "RequestPurpose Role StreamingModelClient ToolCall ToolDefinition"
    ),
    "options": "SessionOptions",
    "redaction": "MASK Redacted Redactor",
    "reports": (
        "AgentCloseReport ContextReport IncludedItem ProviderOutcome ProviderReport SessionCloseReport "
        "SessionStatistics TurnCompleted TurnContext TurnEvent TurnReply TurnStarted TurnText TurnTool"
    ),
    "runs": "ContextRecord RUN RunEvent RunLog RunRecord RunState RunStep",
    "session": "AgentSession",
    "snapshot": "SESSION_SCHEMA SessionSnapshot",
    "store": "RunMark RunMarkKind SessionStore StoredSession",
    "stream": "TurnStream",
    "tools": "MAX_TOOL_RESULT_BYTES Tool ToolInvocation Toolbox",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list of names, computed


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__]
