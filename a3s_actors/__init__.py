"""Durable, evidence-backed memory for trio-based AI agents.

Layers, each importing only those below it:

- `a3s_actors.actor`: lifetimes, mailboxes, leases, bounded close, the seam for blocking work.
- `a3s_actors.memory`: the kernel's values, rules, reads and the `MemoryRepository` protocol; pure.
- `a3s_actors.recall`: the binding of a repository to agents: proposals, activation, recall, admission.
- `a3s_actors.testing`: conformance suites and helpers for third parties.
- `a3s_actors.cli`: the command line (extra `cli`).

Storage lives in the separate import package `a3s_backends`; the engine never imports it.
"""

from a3s_actors._version import __version__

__all__ = ["__version__"]
