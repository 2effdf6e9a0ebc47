"""Saving a session: generations, marks, and what a save of unknown outcome means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from a3s_actors.actor.events import warn
from a3s_actors.agent.errors import (
    SessionExists,
    SessionStoreConflict,
    SessionStoreError,
    SessionStoreUnavailable,
)
from a3s_actors.agent.model import ModelMessage
from a3s_actors.agent.redaction import Redactor
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, SessionStore

if TYPE_CHECKING:
    from a3s_actors.agent.session import AgentSession

__all__ = ["SessionSaver"]

_SAVE_SECONDS: Final = 10.0


class SessionSaver:
    """Saves one session, one save at a time."""

    def __init__(self, session: AgentSession, store: SessionStore | None, snapshot: SessionSnapshot | None) -> None:
        self._session = session
        self._store = store
        self._generation = 0 if snapshot is None else snapshot.generation
        self._created_at = session._host.now() if snapshot is None else snapshot.created_at
        self._lock = trio.Lock()
        self._changes = 1
        self._saved = 0
        self._uncertain: SessionSnapshot | None = None
        self._redactor = None
        if session.options.redact_transcript:
            policy = session.options.extraction
            self._redactor = Redactor() if policy is None else policy.redactor
        self._prompt: str | None = None  # the redacted instructions, once made
        self._redacted: dict[int, tuple[ModelMessage, ModelMessage]] = {}

    @property
    def unsaved(self) -> bool:
        """Whether there is something that the store has not got."""
        return self._store is not None and self._saved != self._changes

    def touch(self) -> None:
        """Note that something has changed."""
        self._changes += 1

    async def claim(self) -> None:
        """Save for the first time since the session was made or resumed: from here on it is ours.

        Raises:
            SessionExists: a new session's id is in the store.
            SessionStoreError: it could not be saved, or somebody else has resumed it.
        """
        await trio.lowlevel.checkpoint()
        new = self._generation == 0
        try:
            await self.save()
        except SessionStoreConflict:
            if new:
                raise SessionExists(self._session.session_id) from None
            raise

    async def save(self) -> None:
        """Save what the session is now. See `AgentSession.save`."""
        if self._store is None:
            return
        async with self._lock:
            changes = self._changes
            raced: SessionStoreConflict | None = None
            snapshot = await self._snapshot()
            try:
                await self._store.save(snapshot)
            except SessionStoreUnavailable:
                self._uncertain = snapshot  # it may be there all the same
                raise
            except SessionStoreConflict as conflict:
                raced = conflict
            if raced is not None:
                if not await self._was_ours(raced):
                    raise raced
                snapshot = attrs.evolve(snapshot, generation=self._generation + 1)
                await self._store.save(snapshot)
            self._uncertain = None
            self._generation = snapshot.generation
            self._saved = changes

    async def _was_ours(self, conflict: SessionStoreConflict) -> bool:
        """Whether the stored generation is the one that an earlier, failed save of ours left."""
        mine = self._uncertain
        if self._store is None or mine is None or conflict.actual != mine.generation:
            return False
        stored = await self._store.load(self._session.session_id)
        if stored.snapshot.to_json() != mine.to_json():
            return False
        self._generation = mine.generation
        return True

    async def save_shielded(self) -> bool:
        """Save what is done whatever the caller's cancellation; bounded. Return whether it is saved."""
        with trio.move_on_after(_SAVE_SECONDS, shield=True):
            try:
                await self.save()
            except SessionStoreError as error:
                warn("a3s_actors.agent", "session_not_saved", session=self._session.session_id, error=error.code)
            else:
                return True
        return False

    async def mark(self, mark: RunMark) -> None:
        """Keep a mark beside the saved state.

        Raises:
            SessionStoreError: it could not be kept.
        """
        assert self._store is not None
        if self._uncertain is not None:
            await self.save()  # which generation a mark belongs to must be known
        await self._store.mark(self._session.session_id, self._generation, mark)

    async def _snapshot(self) -> SessionSnapshot:
        session = self._session
        durable = session.options.durable_memory
        return SessionSnapshot(
            session_id=session.session_id,
            generation=self._generation + 1,
            workspace=session.workspace,
            tenant_id=session.tenant_id,
            principal_id=session.principal_id,
            system_prompt=await self._instructions(),
            messages=await self._transcript(),
            runs=session.runs(),
            durable_memory=None if durable is None else durable.binding(),
            created_at=self._created_at,
            saved_at=session._host.now(),
        )

    async def _instructions(self) -> str | None:
        redactor, text = self._redactor, self._session.system_prompt
        if redactor is None or text is None:
            return text
        if self._prompt is None:
            self._prompt = (await trio.to_thread.run_sync(redactor.redact, text)).text
        return self._prompt

    async def _transcript(self) -> tuple[ModelMessage, ...]:
        messages = self._session.messages
        redactor = self._redactor
        if redactor is None:
            return messages
        fresh = [each for each in messages if id(each) not in self._redacted]
        if fresh:
            made = await trio.to_thread.run_sync(lambda: [_without_secrets(redactor, each) for each in fresh])
            self._redacted.update((id(old), (old, new)) for old, new in zip(fresh, made, strict=True))
        # The message is kept with its copy: an id is a name for as long as its object lives.
        self._redacted = {id(each): self._redacted[id(each)] for each in messages}
        return tuple(self._redacted[id(each)][1] for each in messages)


def _without_secrets(redactor: Redactor, message: ModelMessage) -> ModelMessage:
    def redact(text: str) -> str:
        return redactor.redact(text).text

    # A call's id stays: a result names it.
    calls = tuple(
        attrs.evolve(call, name=redact(call.name), arguments=redact(call.arguments)) for call in message.tool_calls
    )
    return attrs.evolve(message, content=redact(message.content), tool_calls=calls)
