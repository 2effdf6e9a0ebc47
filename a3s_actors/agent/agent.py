"""`open_agent` and `Agent`: one model client and one host environment, and the sessions that use them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from weakref import WeakValueDictionary

import attrs
import trio

from a3s_actors.actor.errors import LeaseHeld
from a3s_actors.actor.events import warn
from a3s_actors.actor.lease import LeaseRegistry
from a3s_actors.agent.errors import AgentClosed, SessionInUse
from a3s_actors.agent.host import HostEnv
from a3s_actors.agent.model import ModelClient
from a3s_actors.agent.options import SessionOptions
from a3s_actors.agent.reports import AgentCloseReport, SessionCloseReport
from a3s_actors.agent.resuming import recovered_runs
from a3s_actors.agent.session import AgentSession
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.memory._checks import check_text
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.recall.binding import DurableMemoryBindingMismatch, check_resumed_binding

__all__ = ["Agent", "open_agent"]

_CLOSE_SECONDS: Final = 15.0


class Agent:
    """An open agent, as `open_agent` yields it.

    Attributes:
        model_client: who answers; the host's.
        host: the host's clock and ids.
    """

    def __init__(self, model_client: ModelClient, host: HostEnv, nursery: trio.Nursery) -> None:
        self.model_client = model_client
        self.host = host
        self._nursery = nursery
        self._leases = LeaseRegistry()
        # Weak: an agent does not keep a session that its host has dropped.
        self._sessions: WeakValueDictionary[str, AgentSession] = WeakValueDictionary()
        self._closed = False
        self._report: AgentCloseReport | None = None
        self._ended = trio.Event()

    def __repr__(self) -> str:
        return f"<Agent {'closed' if self._closed else 'open'}, {len(self._sessions)} sessions>"

    @asynccontextmanager
    async def open_session(
        self, workspace: str = "", options: SessionOptions | None = None
    ) -> AsyncIterator[AgentSession]:
        """Open a new session for the length of the block.

        Args:
            workspace: the host's name of where it works, at most 4096 bytes; kept with the session.
            options: what it works with.

        Raises:
            AgentClosed: the agent is closed.
            SessionInUse: the agent has a session of that id open.
            SessionExists: the store has one; resume it.
            SessionStoreError: it could not be saved for the first time.
            InvalidInput, LimitExceeded: an argument is malformed.

        Cancellation: entering is a checkpoint. Leaving closes the session, within its `close_seconds`.
        """
        session = self._make(workspace, options, None)
        with self._registered(session):
            async with session._live():
                yield session

    @asynccontextmanager
    async def resume_session(self, session_id: str, options: SessionOptions) -> AsyncIterator[AgentSession]:
        """Open a stored session for the length of the block, with the memory that it was saved with, or not at all.

        Messages and runs come from the store. Live objects come from the options again: memory, tools, providers,
        schedules. The binding is checked before anything else happens. A run that its process did not finish is
        interrupted, and says what was sent to the model.

        Args:
            session_id: the session.
            options: what it works with; with its store. Where they name no system prompt, the stored one is used.

        Raises:
            SessionNotFound, SessionStoreError: the store does not have it, or not whole.
            DurableMemoryBindingMismatch: the memory is not the one that it was saved with, or its owner differs.
            AgentClosed, SessionInUse, InvalidInput: as for `open_session`.
            SessionStoreConflict: somebody else has resumed it at the same time.

        Cancellation: as `open_session`.
        """
        check_text("session.sessionId", session_id, 256)
        given: object = options
        if not isinstance(given, SessionOptions) or given.store is None:
            raise InvalidInput("session.store", "must be the store that has the session")
        if options.session_id not in (None, session_id):
            raise InvalidInput("session.sessionId", "differs from the session to resume; leave it out")
        self._check_open()
        stored = await given.store.load(session_id)
        snapshot = stored.snapshot
        durable = options.durable_memory
        check_resumed_binding(snapshot.durable_memory, None if durable is None else durable.binding())
        for field, saved, given in zip(
            ("tenantId", "principalId"), (snapshot.tenant_id, snapshot.principal_id), options.owner, strict=True
        ):
            if saved != given:
                raise DurableMemoryBindingMismatch(field, "differs from what the session was saved with")
        snapshot = attrs.evolve(snapshot, runs=recovered_runs(stored, self.host.now()))
        session = self._make(snapshot.workspace, attrs.evolve(options, session_id=session_id), snapshot)
        with self._registered(session):
            async with session._live():
                yield session

    def session(self, workspace: str = "", options: SessionOptions | None = None) -> AgentSession:
        """Build a session without a block: for hosts that only make the object. Synchronous.

        It lives until its `close`, and at the longest until the agent's. Its first save happens in the agent's
        nursery; where that fails, its turns raise `SessionClosed` with the reason as the cause.

        Args:
            workspace: as for `open_session`.
            options: as for `open_session`.

        Raises:
            AgentClosed, SessionInUse, InvalidInput, LimitExceeded: as for `open_session`.
        """
        session = self._make(workspace, options, None)
        lease = self._leases.hold(session.session_id, "a session")
        try:
            lease.__enter__()
        except LeaseHeld:
            raise SessionInUse(session.session_id) from None
        self._sessions[session.session_id] = session

        async def live() -> None:
            try:
                async with session._live():
                    await session._close_asked.wait()
            except Exception as error:  # noqa: BLE001 - a session's failure is its callers', not the agent's
                session._failed(error)
                warn("a3s_actors.agent", "session_failed", session=session.session_id, error=type(error).__name__)
            finally:
                lease.__exit__(None, None, None)
                self._forget(session)

        self._nursery.start_soon(live, name=f"session {session.session_id}")
        return session

    def sessions(self) -> tuple[str, ...]:
        """Return the ids of the open sessions, sorted."""
        return tuple(sorted(self._leases.holders()))

    async def close(self) -> AgentCloseReport:
        """Close all sessions that are open, and return the agent's report; the same one however often it is called.

        Bounded: 15 s beyond each session's own `close_seconds` are not exceeded.

        Cancellation: a cancelled call stops waiting; the closing goes on when the agent's block is left.
        """
        await trio.lowlevel.checkpoint()
        if self._closed:
            await self._ended.wait()
        else:
            await self._close()
        assert self._report is not None
        return self._report

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        self._closed = True
        open_now = {name: session for name in self.sessions() if (session := self._sessions.get(name)) is not None}
        reports: dict[str, SessionCloseReport] = {}

        async def close(name: str, session: AgentSession) -> None:
            reports[name] = await session.close()

        bound = max([session.options.close_seconds for session in open_now.values()], default=0.0) + _CLOSE_SECONDS
        with trio.move_on_after(bound, shield=True):
            async with trio.open_nursery() as nursery:
                for name, session in open_now.items():
                    nursery.start_soon(close, name, session, name=f"agent: close {name}")
        self._report = AgentCloseReport(
            sessions=tuple(reports[name] for name in open_now if name in reports),
            unfinished=tuple(name for name in open_now if name not in reports),
        )
        self._ended.set()

    def _check_open(self) -> None:
        if self._closed:
            raise AgentClosed

    def _make(self, workspace: str, options: SessionOptions | None, snapshot: SessionSnapshot | None) -> AgentSession:
        self._check_open()
        check_text("session.workspace", workspace, 4096, empty_ok=True)
        given: object = options
        if given is not None and not isinstance(given, SessionOptions):
            raise InvalidInput("session.options", f"must be SessionOptions, not {type(given).__name__}")
        chosen = SessionOptions() if options is None else options
        session_id = self.host.name("session") if chosen.session_id is None else chosen.session_id
        return AgentSession(self, session_id, workspace, chosen, snapshot)

    @contextmanager
    def _registered(self, session: AgentSession) -> Iterator[None]:
        lease = self._leases.hold(session.session_id, "a session")
        try:
            lease.__enter__()
        except LeaseHeld:
            raise SessionInUse(session.session_id) from None
        self._sessions[session.session_id] = session
        try:
            yield
        finally:
            lease.__exit__(None, None, None)
            self._forget(session)

    def _forget(self, session: AgentSession) -> None:
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]


@asynccontextmanager
async def open_agent(model_client: ModelClient, *, host: HostEnv | None = None) -> AsyncIterator[Agent]:
    """Open an agent for the length of the block.

        async with open_agent(client) as agent:
            async with agent.open_session("workspace", SessionOptions(durable_memory=durable)) as session:
                reply = await session.send("…")

    Leaving the block closes every session that is still open. The model client, repositories, stores, providers and
    tools are the host's: nothing of them is closed.

    Args:
        model_client: who answers.
        host: the host's clock and ids; None: the system's clock, and random ids.

    Raises:
        InvalidInput: an argument is not what it should be.

    Cancellation: entering is a checkpoint. A cancelled block leaves after the bounded close.
    """
    client: object = model_client
    if not isinstance(client, ModelClient):
        raise InvalidInput("agent.modelClient", f"must be a ModelClient, not {type(client).__name__}")
    await trio.lowlevel.checkpoint()
    failure: BaseException | None = None
    # Nothing is meant to come out of this nursery: the body's exception keeps its shape.
    async with trio.open_nursery() as nursery:
        agent = Agent(model_client, HostEnv() if host is None else host, nursery)
        try:
            yield agent
        except BaseException as error:  # noqa: BLE001, ASYNC103 - raised again below
            failure = error
        with trio.CancelScope(shield=True):  # bounded by the deadline of closing
            await agent.close()
    if failure is not None:
        try:
            raise failure
        finally:
            del failure
