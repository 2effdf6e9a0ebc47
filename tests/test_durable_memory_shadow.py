"""There is one mode, active recall: no shadow mode can be made, stored or resumed."""

from __future__ import annotations

import pytest

from a3s_actors.memory import InvalidInput
from a3s_actors.recall import DurableMemoryBindingV1, DurableMemoryMode, DurableMemorySession
from a3s_actors.testing.building import NS
from a3s_backends.in_memory import open_in_memory_repository
from tests.agents import POLICY


def test_active_recall_is_the_only_mode() -> None:
    assert [mode.value for mode in DurableMemoryMode] == ["active_recall"]


def test_no_door_makes_a_shadow_session() -> None:
    assert not [name for name in dir(DurableMemorySession) if "shadow" in name.lower()]


def test_a_persisted_shadow_mode_is_refused() -> None:
    stored = DurableMemoryBindingV1(namespace=NS, policy=POLICY).to_json()
    for other in ("shadow", "Active_Recall", "", "off"):
        with pytest.raises(InvalidInput) as caught:
            DurableMemoryBindingV1.from_json(stored.replace("active_recall", other))
        assert caught.value.field == "binding.mode"


async def test_a_session_says_that_it_serves() -> None:
    async with open_in_memory_repository() as repository:
        durable = DurableMemorySession.active_recall(repository, NS, POLICY)
        assert durable.mode is DurableMemoryMode.ACTIVE_RECALL
        assert durable.binding().mode is DurableMemoryMode.ACTIVE_RECALL
