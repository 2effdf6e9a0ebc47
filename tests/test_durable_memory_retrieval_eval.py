"""The gate retrieval: it passes, and it sees each rule that is broken."""

from __future__ import annotations

import pytest

from tests.gates import rules, run


async def test_the_gate_passes() -> None:
    report = await run("retrieval")
    assert report.failures == ()
    assert report.passed


@pytest.mark.slow
@rules("retrieval")
async def test_with_a_broken_rule_the_gate_fails(rule: str) -> None:
    assert not (await run("retrieval", rule)).passed
