"""The state tables: complete, strict, and equal to the page that shows them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from a3s_actors.actor import IllegalTransition
from a3s_actors.actor.lifecycle import LIFE, REQUEST, LifeEvent, LifeState, RequestEvent, RequestState, TransitionTable

PAGE = (Path(__file__).resolve().parents[1] / "a3s_actors" / "docs" / "actor.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("table", "states", "events"), [(REQUEST, RequestState, RequestEvent), (LIFE, LifeState, LifeEvent)]
)
def test_every_state_and_event_is_in_the_table_and_all_else_is_refused(table, states, events) -> None:  # type: ignore[no-untyped-def]
    rows = {(state, event): after for state, event, after in table}
    assert {state for state, _ in rows} | {state for state in states if table.is_final(state)} == set(states)
    assert {event for _, event in rows} == set(events)
    for state in states:
        for event in events:
            if (state, event) in rows:
                assert table.after(state, event) is rows[state, event]
            else:
                with pytest.raises(IllegalTransition, match=event.value):
                    table.after(state, event)


@pytest.mark.parametrize("table", [REQUEST, LIFE], ids=["request", "life"])
def test_the_page_shows_the_table(table: TransitionTable) -> None:  # type: ignore[type-arg]
    assert table.markdown() in PAGE


@pytest.mark.slow
def test_the_pages_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "21\n"
