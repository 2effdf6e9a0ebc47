"""`SessionOptions`: everything that a host gives to a session. Live objects stay the host's."""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from a3s_actors.agent.agent_memory import AgentMemory
from a3s_actors.agent.context import ContextPolicy, ContextProvider
from a3s_actors.agent.extraction import ExtractionPolicy
from a3s_actors.agent.gathering import RESERVED_PROVIDERS
from a3s_actors.agent.store import SessionStore
from a3s_actors.agent.tools import Tool, Toolbox
from a3s_actors.memory._checks import check_text, check_whole
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.recall.session import DurableMemorySession

__all__ = ["SessionOptions"]


def _to_tools(value: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(value)


def _to_providers(value: Iterable[ContextProvider]) -> tuple[ContextProvider, ...]:
    return tuple(value)


@attrs.frozen(kw_only=True, eq=False)
class SessionOptions:
    """What a session works with.

    Args:
        session_id: its name, 1 to 256 bytes; None: the host's generator makes one.
        tenant_id, principal_id: whose session it is. Left out, they are the durable memory's; given, they must equal
            its. The scope is never inferred.
        system_prompt: instructions of the host, before every conversation.
        durable_memory: the exact memory that it recalls from and proposes to; None: none, and none is inherited.
        memory: a V1 memory; its items may enter contexts, without audit.
        context_providers: more sources of context.
        context: how much context a turn may have.
        tools: what the model may call.
        extraction: whether and how turns are extracted; None: not at all.
        store: where the session is kept; None: nowhere.
        redact_transcript: whether the stored transcript and instructions are redacted, too (with the extraction's
            redactor). Instructions that hold a secret have to be given again on resume.
        max_tool_rounds: how often a turn may go back to the model with tools' results, 0 to 100.
        max_retained_runs: how many run records are kept, first in, first out; 1 to 10,000.
        max_history_messages: how many messages of earlier turns are kept and sent; whole turns go, the oldest first.
        max_waiting_turns: how many callers may wait in line; further ones wait for a place in it.
        temperature, max_output_tokens: as in `ModelRequest`.
        close_seconds: how long closing may take in all.

    Raises:
        InvalidInput, LimitExceeded: an option is malformed, or contradicts the durable memory.
    """

    session_id: str | None = None
    tenant_id: str | None = None
    principal_id: str | None = None
    system_prompt: str | None = attrs.field(default=None, repr=False)
    durable_memory: DurableMemorySession | None = None
    memory: AgentMemory | None = None
    context_providers: tuple[ContextProvider, ...] = attrs.field(default=(), converter=_to_providers, repr=False)
    context: ContextPolicy = attrs.field(factory=ContextPolicy)
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_to_tools, repr=False)
    extraction: ExtractionPolicy | None = None
    store: SessionStore | None = attrs.field(default=None, repr=False)
    redact_transcript: bool = False
    max_tool_rounds: int = 8
    max_retained_runs: int = 100
    max_history_messages: int = 200
    max_waiting_turns: int = 64
    temperature: float | None = None
    max_output_tokens: int | None = None
    close_seconds: float = 5.0

    def __attrs_post_init__(self) -> None:
        if self.session_id is not None:
            check_text("session.sessionId", self.session_id, 256)
            if "\0" in self.session_id:
                raise InvalidInput("session.sessionId", "must not hold U+0000")
        for name in ("tenant_id", "principal_id"):
            if getattr(self, name) is not None:
                check_text(f"session.{name}", getattr(self, name), 256)
        if self.system_prompt is not None:
            check_text("session.systemPrompt", self.system_prompt, 1 << 20, empty_ok=True)
        for name, kind in (
            ("durable_memory", DurableMemorySession),
            ("memory", AgentMemory),
            ("extraction", ExtractionPolicy),
            ("store", SessionStore),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise InvalidInput(f"session.{name}", f"must be a {kind.__name__}, not {type(value).__name__}")
        policy: object = self.context
        if not isinstance(policy, ContextPolicy):
            raise InvalidInput("session.context", f"must be a ContextPolicy, not {type(policy).__name__}")
        names = [getattr(each, "name", None) for each in self.context_providers]
        if any(not isinstance(name, str) or not name for name in names) or len(set(names)) != len(names):
            raise InvalidInput("session.contextProviders", "must each have a name of their own")
        if RESERVED_PROVIDERS & set(names):
            raise InvalidInput(
                "session.contextProviders", f"must not be named {' or '.join(sorted(RESERVED_PROVIDERS))}"
            )
        Toolbox(self.tools)
        check_whole("session.maxToolRounds", self.max_tool_rounds, 0, 100)
        check_whole("session.maxRetainedRuns", self.max_retained_runs, 1, 10_000)
        check_whole("session.maxHistoryMessages", self.max_history_messages, 0)
        check_whole("session.maxWaitingTurns", self.max_waiting_turns, 1)
        seconds: object = self.close_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise InvalidInput("session.closeSeconds", "must be a finite number of seconds, not negative")
        self._check_owner()

    def _check_owner(self) -> None:
        durable = self.durable_memory
        if durable is None:
            return
        for name in ("tenant_id", "principal_id"):
            given, wanted = getattr(self, name), getattr(durable.namespace, name)
            if given is not None and given != wanted:
                raise InvalidInput(f"session.{name}", "differs from the durable memory's namespace; leave it out")

    @property
    def owner(self) -> tuple[str | None, str | None]:
        """Tenant and principal, filled in from the durable memory."""
        if self.durable_memory is None:
            return self.tenant_id, self.principal_id
        space = self.durable_memory.namespace
        return space.tenant_id, space.principal_id
