"""Random histories: every backend answers as the reference state machine does, restarts included."""

from __future__ import annotations

import random
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from a3s_actors.memory import MemoryQuery, MemoryStatus
from a3s_actors.testing import run_model
from a3s_actors.testing.building import NS, OTHER
from a3s_actors.testing.stateful import ModelDriver
from tests.test_repository_conformance import factory_of


@pytest.mark.parametrize("backend", ["in_memory", "sqlite", "journal"])
@pytest.mark.parametrize("seed", range(6))
async def test_a_seeded_history_of_a_backend_equals_the_references(backend: str, seed: int, tmp_path: Path) -> None:
    await run_model(factory_of(backend, tmp_path), seed, steps=250)


class RepositoryMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens, and shrinks what fails. Each rule is one call beside the reference's."""

    backend = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.factory = factory_of(self.backend, Path(self.folder.name))
        self.driver = ModelDriver(random.Random(0))

    @initialize(seed=st.integers(0, 2**32 - 1))
    def choose_the_words(self, seed: int) -> None:
        self.driver.chance.seed(seed)

    def run(self, work: Any) -> None:
        # Opened anew for each rule: every step is also a restart.
        async def inside() -> None:
            async with AsyncExitStack() as stack:
                await work(await stack.enter_async_context(self.factory()))

        trio.run(inside)

    @rule(count=st.integers(1, 6))
    def apply_change_sets(self, count: int) -> None:
        async def work(repository: Any) -> None:
            for _ in range(count):
                await self.driver.apply(repository, self.driver.change_set())

        self.run(work)

    @rule(count=st.integers(1, 4))
    def record_events(self, count: int) -> None:
        async def work(repository: Any) -> None:
            for _ in range(count):
                await self.driver.record(repository, *self.driver.event())

        self.run(work)

    @rule(number=st.integers(0, 11), space=st.sampled_from([NS, OTHER]))
    def purge_a_node(self, number: int, space: Any) -> None:
        self.run(lambda repository: self.driver.purge(repository, f"n{number}", space))

    @rule(
        text=st.text(min_size=1, max_size=20).filter(str.isalnum),
        statuses=st.sets(st.sampled_from(list(MemoryStatus)), min_size=1),
    )
    def query(self, text: str, statuses: Any) -> None:
        async def work(repository: Any) -> None:
            try:
                query = MemoryQuery(namespace=NS, text=text, statuses=statuses)
            except Exception:
                return  # alphanumeric for Python, not for the profile
            assert await repository.query(query) == self.driver.reference.query(query)

        self.run(work)

    @precondition(lambda self: self.driver.applied)
    @rule()
    def replay(self) -> None:
        async def work(repository: Any) -> None:
            await self.driver.apply(repository, self.driver.chance.choice(self.driver.applied))

        self.run(work)

    @invariant()
    def everything_is_equal(self) -> None:
        self.run(self.driver.compare_state)

    def teardown(self) -> None:
        self.folder.cleanup()


class JournalMachine(RepositoryMachine):
    backend = "journal"


_SETTINGS = settings(
    max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestSqliteMachine = RepositoryMachine.TestCase
TestSqliteMachine.settings = _SETTINGS
TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = _SETTINGS
