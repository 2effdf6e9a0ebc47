"""Memories in one SQLite file, through APSW.

`repository` is the door; `schema` says what is stored and why, `writing` and `batch` how a write becomes
durable, `reading` how reads stay pure, `lexical_*` the index, `verifying` what is checked.
"""

from a3s_backends.sqlite.backup import BackupReceipt, RestoreReceipt
from a3s_backends.sqlite.log import LogCursor, LogPage
from a3s_backends.sqlite.repository import SqliteMemoryRepository, open_sqlite_repository, restore_sqlite_repository
from a3s_backends.sqlite.statistics import FileStatistics, NamespaceStatistics
from a3s_backends.sqlite.verifying import Finding

__all__ = [
    "BackupReceipt",
    "FileStatistics",
    "Finding",
    "LogCursor",
    "LogPage",
    "NamespaceStatistics",
    "RestoreReceipt",
    "SqliteMemoryRepository",
    "open_sqlite_repository",
    "restore_sqlite_repository",
]
