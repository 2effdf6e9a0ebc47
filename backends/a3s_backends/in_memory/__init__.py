"""Memories in this process only: the executable reference. Nothing survives the `async with` block.

`repository` is the door; `reads` is what every backend shares whose whole state is in memory.
"""

from a3s_backends.in_memory.repository import InMemoryRepository, open_in_memory_repository

__all__ = ["InMemoryRepository", "open_in_memory_repository"]
