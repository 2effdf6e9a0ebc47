"""Purge: what goes, what stays, and that nothing comes back."""

from __future__ import annotations

from a3s_actors.memory.errors import (
    ChangeSetPurged,
    IdempotencyConflict,
    InvalidInput,
    NodeNotFound,
)
from a3s_actors.memory.reads import MemoryQuery
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.values import PURGED_PREFIX, MemoryStatus, RelationKind, RevisionKind
from a3s_actors.testing._checks_changes import node_of, put
from a3s_actors.testing._registry import check, expect, expect_equal, refused, unchanged
from a3s_actors.testing.building import NS, OTHER, access, add, at, change, create, purge, revise, set_status


@check
async def purge_erases_nodes_histories_change_sets_and_events(repository: MemoryRepository) -> None:
    """A purged node is in no read; the receipt counts what went; the rest is as it was; the token rises."""
    await repository.apply(change("keep", create("keep")))
    await repository.apply(change("gone", create("gone", "secret words")))
    await repository.apply(change("revise", revise("gone", "secret words again")))
    await repository.record_use(access("kept", "keep"))
    for number in range(3):
        await repository.record_use(access(f"e{number}", "gone"))
    token = await repository.namespace_change_token(NS)
    receipt = await repository.purge(purge("p", "gone"))
    expect_equal((receipt.nodes, receipt.revisions, receipt.access_events), (1, 2, 3), "the receipt's counts")
    expect_equal([each.key for each in receipt.change_sets], ["gone", "revise"], "the erased change sets")
    expect(await repository.get(NS, "gone") is None, "a purged node is gone")
    expect_equal(await repository.query(MemoryQuery(namespace=NS, text="secret")), (), "its words find nothing")
    expect_equal([each.event.id for each in (await repository.access_events(NS)).records], ["kept"], "the events")
    expect_equal((await node_of(repository, "keep")).revision, 1, "another node")
    after = await repository.namespace_change_token(NS)
    expect(token is None or (after is not None and after > token), "the token rises")
    with refused(NodeNotFound):
        await repository.history(NS, "gone")


@check
async def purge_is_remembered(repository: MemoryRepository) -> None:
    """An erased change set is refused for ever; the purge's own key is idempotent; the id is free again."""
    await repository.apply(change("gone", create("gone")))
    receipt = await repository.purge(purge("p", "gone"))
    async with unchanged(repository):
        expect_equal(await repository.purge(purge("p", "gone")), receipt, "the receipt of a replay")
        with refused(IdempotencyConflict, key="p"):
            await repository.purge(purge("p", "other"))
        with refused(ChangeSetPurged, key="gone", digest=receipt.change_sets[0].digest):
            await repository.apply(change("gone", create("gone")))
        with refused(ChangeSetPurged, key="gone"):
            await repository.apply(change("gone", create("gone", "other text")))
    await repository.apply(change("new", create("gone", "other text")))


@check
async def purge_of_an_unknown_node_erases_nothing(repository: MemoryRepository) -> None:
    """A purge names existing nodes of its namespace, and is not before the last change of a neighbour."""
    related = RelationKind.RELATED_TO
    await repository.apply(
        change("k", create("a"), create("b"), add("a", related, "b"), add("b", related, "a"), second=50)
    )
    async with unchanged(repository, NS, OTHER):
        with refused(NodeNotFound, node_id="nobody"):
            await repository.purge(purge("p", "a", "nobody"))
        with refused(NodeNotFound):
            await repository.purge(purge("p", "a", namespace=OTHER))
        with refused(InvalidInput):
            await repository.purge(purge("p", "a", second=49))


@check
async def purge_takes_neighbours_relations_with_it(repository: MemoryRepository) -> None:
    """A neighbour loses its edge as a revision; one whose status needs the edge keeps a content-free mark."""
    await put(repository, "superseded", MemoryStatus.SUPERSEDED)
    await put(repository, "conflicted", MemoryStatus.CONFLICTED)
    related = RelationKind.RELATED_TO
    await repository.apply(
        change(
            "r", create("friend"), add("friend", related, "superseded-new"), add("superseded-new", related, "friend", 2)
        )
    )
    receipt = await repository.purge(purge("p", "superseded-new", "conflicted-rival"))
    expect_equal(receipt.neighbours, ("conflicted", "friend", "superseded"), "the neighbours by id")
    friend = await node_of(repository, "friend")
    expect_equal((friend.relations, friend.revision_kind), ((), RevisionKind.RELATION_CHANGED), "a plain neighbour")
    expect_equal(friend.updated_at, at(100), "its time")
    for node_id in ("superseded", "conflicted"):
        node = await node_of(repository, node_id)
        expect_equal(len(node.relations), 1, "the mark")
        expect(node.relations[0].target_id.startswith(PURGED_PREFIX), "the mark names nobody")
        await repository.apply(
            change(f"t-{node_id}", set_status(node_id, MemoryStatus.TOMBSTONED, node.revision), second=100)
        )


@check
async def purge_of_everything_leaves_other_namespaces_alone(repository: MemoryRepository) -> None:
    """Without ids a whole namespace goes; others stay as they are."""
    await repository.apply(change("k", create("a"), create("b")))
    await repository.apply(change("k", create("a", namespace=OTHER), namespace=OTHER))
    async with unchanged(repository, OTHER):
        receipt = await repository.purge(purge("p"))
    expect_equal(receipt.nodes, 2, "everything")
    expect_equal(await repository.get_heads(NS, ["a", "b"]), {}, "nothing is left")
