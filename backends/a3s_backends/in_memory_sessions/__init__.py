"""Sessions in this process only, and what every session store shares. Nothing survives the `async with` block.

`store` is the door; `checks` says what a store refuses before it changes anything, `marks` how a mark is written.
"""

from a3s_backends.in_memory_sessions.store import InMemorySessionStore, open_in_memory_session_store

__all__ = ["InMemorySessionStore", "open_in_memory_session_store"]
