"""Memories in one append-only journal: the file format of the a3s-memory crate (V2), byte for byte.

`repository` is the door; `format` is what a line is, `base` what a purge leaves, `reading` how a file of lines is read,
`file` who owns it and how it grows, `writing` how waiting writes become one synced append.
"""

from a3s_backends.journal.base import BaseRecord
from a3s_backends.journal.file import JOURNAL_NAME
from a3s_backends.journal.format import JournalEvent, JournalRecord, record_line
from a3s_backends.journal.reading import JournalReader, TornTail, read_journal
from a3s_backends.journal.repository import FileMemoryRepository, open_file_repository

__all__ = [
    "JOURNAL_NAME",
    "BaseRecord",
    "FileMemoryRepository",
    "JournalEvent",
    "JournalReader",
    "JournalRecord",
    "TornTail",
    "open_file_repository",
    "read_journal",
    "record_line",
]
