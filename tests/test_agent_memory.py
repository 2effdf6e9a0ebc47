"""`AgentMemory`: search, order, supersession, pruning; no side effect, no task."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.agent import AgentMemory, MemoryItem, PrunePolicy
from a3s_actors.agent.agent_memory import AgentMemoryWeights, MemoryItemType
from a3s_actors.memory import InvalidInput, LimitExceeded
from a3s_actors.testing.building import at

DAY = 86_400
NOW = at(1000 * DAY)


def item(name: str, content: str = "plain words", day: float = 999, **more: Any) -> MemoryItem:
    return MemoryItem(id=name, content=content, created_at=at(day * DAY), **more)


def filled(*items: MemoryItem) -> AgentMemory:
    memory = AgentMemory()
    for each in items:
        memory.remember(each)
    return memory


def test_relevance_is_seven_tenths_importance_and_three_tenths_youth() -> None:
    weights = AgentMemoryWeights()
    assert weights.relevance(item("a", day=1000, importance=1.0), NOW) == pytest.approx(1.0)
    assert weights.relevance(item("a", day=970, importance=0.5), NOW) == pytest.approx(0.35 + 0.3 / math.e)
    assert weights.relevance(item("a", day=1001, importance=0.0), NOW) == pytest.approx(0.3), "the future counts as now"
    other = AgentMemoryWeights(importance=0.0, recency=1.0, decay_days=1.0)
    assert other.relevance(item("a", day=998), NOW) == pytest.approx(math.exp(-2))


def test_a_search_ranks_by_words_shared_then_relevance_then_id_and_counts_what_it_returns() -> None:
    memory = filled(
        item("b", "parcel day", importance=0.5),
        item("a", "parcel day", importance=0.5),
        item("best", "parcel deploy day", importance=0.0),
        item("heavy", "parcel", importance=1.0),
        item("none", "other"),
    )
    found = memory.search("parcel deploy day", NOW, limit=3)
    assert [each.item.id for each in found] == ["best", "a", "b"]
    assert found[0].score == 1.0
    assert found[0].item.access_count == 1
    assert found[0].item.last_accessed == NOW
    assert memory.search("parcel", NOW, count=False)[0].item.access_count == 0
    assert memory.search("parcel", NOW, count=False)[0].item.id == "heavy"
    assert memory.search("?!", NOW) == ()


def test_recent_ones_come_newest_first_and_tagged_ones_most_important_first() -> None:
    memory = filled(
        item("old", day=1, tags=("x", "y"), importance=0.9),
        item("new", day=3, tags=("x",), importance=0.1),
        item("mid", day=2, tags=("x", "y"), importance=0.95),
    )
    assert [each.id for each in memory.recent(2)] == ["new", "mid"]
    assert [each.id for each in memory.by_tags(["x", "y"])] == ["mid", "old"]
    assert [each.id for each in memory.by_tags(["x"], limit=1)] == ["mid"]


def test_short_term_and_working_memories_are_bounded() -> None:
    memory = AgentMemory(short_term_capacity=2, working_capacity=2)
    for number in range(4):
        memory.remember(item(f"s{number}"))
        memory.remember(item(f"w{number}", type=MemoryItemType.WORKING))
    assert [each.id for each in memory.short_term()] == ["s2", "s3"]
    assert [each.id for each in memory.working()] == ["w2", "w3"]


def test_a_superseded_item_is_hidden_from_recall_linked_and_shown_by_the_audit() -> None:
    memory = filled(item("old", "deploy on Monday", tags=("x",)))
    memory.remember(item("new", "deploy on Tuesday", tags=("x",)), supersedes=["old", "never was"])
    assert [each.item.id for each in memory.search("deploy", NOW)] == ["new"]
    assert [each.id for each in memory.recent()] == ["new"]
    assert [each.id for each in memory.by_tags(["x"])] == ["new"]
    assert [(each.id, each.superseded_by) for each in memory.audit()] == [("old", "new"), ("new", None)]


def test_the_first_supersession_stays_and_none_closes_a_circle() -> None:
    memory = filled(item("a"))
    memory.remember(item("b"), supersedes=["a"])
    memory.remember(item("c"), supersedes=["a", "b"])
    memory.remember(item("a"), supersedes=["c"])
    links = {each.id: each.superseded_by for each in memory.audit()}
    assert links == {"a": "b", "b": "c", "c": None}
    with pytest.raises(InvalidInput, match="itself"):
        memory.remember(item("d"), supersedes=["d"])
    assert len(memory) == 3


def test_a_replay_changes_nothing_and_a_taken_id_is_refused() -> None:
    memory = filled(item("a", "one"))
    memory.search("one", NOW)
    assert memory.remember(item("a", "one")).access_count == 1
    with pytest.raises(InvalidInput, match="another item"):
        memory.remember(item("a", "two"))
    with pytest.raises(InvalidInput, match="MemoryItem"):
        memory.remember("a")  # type: ignore[arg-type]


def test_pruning_lets_go_what_is_old_and_unimportant_and_then_the_least_relevant() -> None:
    memory = filled(
        item("old", day=1, importance=0.79),
        item("old but important", day=1, importance=0.8),
        item("new", day=999, importance=0.0),
        item("newer", day=1000, importance=0.0),
    )
    assert memory.prune(PrunePolicy(max_age_days=100), NOW) == 1
    assert [each.id for each in memory.audit()] == ["old but important", "new", "newer"]
    assert memory.prune(PrunePolicy(max_items=2), NOW) == 1
    assert [each.id for each in memory.audit()] == ["old but important", "newer"]
    assert memory.prune(PrunePolicy(max_items=None), NOW) == 0


def test_pruning_never_removes_a_superseded_item_or_its_successor() -> None:
    memory = filled(item("old", day=1, importance=0.0))
    memory.remember(item("new", day=1, importance=0.0), supersedes=["old"])
    memory.remember(item("loose", day=1, importance=0.0))
    assert memory.prune(PrunePolicy(max_items=0, max_age_days=0, min_importance=1.0), NOW) == 1
    assert [each.id for each in memory.audit()] == ["old", "new"]


names = st.sampled_from("abcdefgh")


@given(
    st.lists(st.tuples(names, st.lists(names, max_size=3), st.floats(0, 1), st.integers(0, 1000)), max_size=12),
    st.integers(0, 8),
)
def test_however_items_supersede_each_other_links_end_and_pruning_breaks_none(
    steps: list[tuple[str, list[str], float, int]], most: int
) -> None:
    memory = AgentMemory()
    for name, older, importance, day in steps:
        if name not in older:
            memory.remember(item(name, importance=importance, day=day), supersedes=older)
    memory.prune(PrunePolicy(max_items=most, max_age_days=500), NOW)
    known = {each.id: each.superseded_by for each in memory.audit()}
    for start in known:
        seen: set[str] = set()
        current: str | None = start
        while current is not None:
            assert current not in seen
            seen.add(current)
            assert current in known, "a link leads to an item that is there"
            current = known[current]
    assert {each.id for each in memory.recent(100)} == {name for name, newer in known.items() if newer is None}


@pytest.mark.parametrize(
    "make",
    [
        lambda: item(""),
        lambda: item("a", " "),
        lambda: item("a", "x" * 65_537),
        lambda: item("a", importance=1.5),
        lambda: item("a", importance=float("nan")),
        lambda: item("a", tags="tag"),
        lambda: item("a", tags=("x" * 65,)),
        lambda: item("a", type="semantic"),
        lambda: item("a", access_count=-1),
        lambda: item("a", metadata={"k": "x" * 1025}),
        lambda: AgentMemoryWeights(importance=-1),
        lambda: AgentMemoryWeights(decay_days=0),
        lambda: AgentMemoryWeights(recency=float("inf")),
        lambda: PrunePolicy(max_items=-1),
        lambda: PrunePolicy(max_age_days=float("nan")),
        lambda: PrunePolicy(min_importance=2),
        lambda: AgentMemory(short_term_capacity=0),
        lambda: AgentMemory(working_capacity=0),
        lambda: AgentMemory().search("x", NOW, limit=0),
    ],
)
def test_what_is_out_of_range_is_refused(make: Any) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        make()


def test_no_repr_shows_a_text() -> None:
    memory = filled(item("a", "secret words", tags=("hush",), metadata={"k": "quiet"}))
    shown = repr(memory) + repr(memory.audit()) + repr(memory.search("secret", NOW))
    assert not any(word in shown for word in ("secret", "hush", "quiet"))
