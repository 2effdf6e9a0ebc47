"""Sessions in files: one a session, replaced atomically, with the one before it kept beside it.

`store` is the door; `format` is what the files say, `files` how they are read and replaced, `disk` the few ways in
which this package touches a folder.
"""

from a3s_backends.file_sessions.disk import FileOperations
from a3s_backends.file_sessions.store import FileSessionStore, open_file_session_store

__all__ = ["FileOperations", "FileSessionStore", "open_file_session_store"]
