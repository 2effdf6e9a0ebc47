"""Tools for testing what is built on this package; usable by third parties, and without any test framework.

- `conformance`: what every `MemoryRepository` has to do, as checks that run on a backend of your own.
- `session_stores`: the same for every `SessionStore` of an agent.
- `stateful`: a seeded driver that compares a repository with the reference state machine, step by step.
- `cancellation`: cancels a coroutine at every moment it can be cancelled.
- `scripted_model`: a model client that answers from a script.
- `building`: short ways to evidence, drafts and change sets for tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a3s_actors.testing.cancellation import CancelledCall as CancelledCall
    from a3s_actors.testing.cancellation import sweep_cancellation as sweep_cancellation
    from a3s_actors.testing.conformance import REPOSITORY_CHECKS as REPOSITORY_CHECKS
    from a3s_actors.testing.conformance import CheckResult as CheckResult
    from a3s_actors.testing.conformance import ConformanceFailure as ConformanceFailure
    from a3s_actors.testing.conformance import RepositoryCheck as RepositoryCheck
    from a3s_actors.testing.conformance import RepositoryFactory as RepositoryFactory
    from a3s_actors.testing.conformance import run_conformance as run_conformance
    from a3s_actors.testing.scripted_model import ScriptedModelClient as ScriptedModelClient
    from a3s_actors.testing.scripted_model import proposals_reply as proposals_reply
    from a3s_actors.testing.scripted_model import tool_call as tool_call
    from a3s_actors.testing.session_stores import SESSION_STORE_CHECKS as SESSION_STORE_CHECKS
    from a3s_actors.testing.session_stores import SessionStoreCheck as SessionStoreCheck
    from a3s_actors.testing.session_stores import SessionStoreCheckResult as SessionStoreCheckResult
    from a3s_actors.testing.session_stores import SessionStoreFactory as SessionStoreFactory
    from a3s_actors.testing.session_stores import run_session_store_conformance as run_session_store_conformance
    from a3s_actors.testing.stateful import run_model as run_model

_HOMES = {
    "cancellation": "CancelledCall sweep_cancellation",
    "conformance": (
        "REPOSITORY_CHECKS CheckResult ConformanceFailure RepositoryCheck RepositoryFactory run_conformance"
    ),
    "session_stores": (
        "SESSION_STORE_CHECKS SessionStoreCheck SessionStoreCheckResult SessionStoreFactory"
        " run_session_store_conformance"
    ),
    "scripted_model": "ScriptedModelClient proposals_reply tool_call",
    "stateful": "run_model",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list of names, computed


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__]
