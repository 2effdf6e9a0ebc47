"""Sessions in one SQLite file of their own, through APSW.

`store` is the door; `schema` says what is stored, `database` how it is read and replaced.
"""

from a3s_backends.sqlite_sessions.store import SqliteSessionStore, open_sqlite_session_store

__all__ = ["SqliteSessionStore", "open_sqlite_session_store"]
