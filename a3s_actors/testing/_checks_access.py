"""Access events: admissions and uses, their rules, counts, order and idempotency."""

from __future__ import annotations

from a3s_actors.memory.errors import (
    AdmissionNotAllowed,
    IdempotencyConflict,
    InvalidInput,
    NodeNotFound,
    NodeRevisionNotFound,
)
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.values import AccessKind, MemoryStatus
from a3s_actors.testing._checks_changes import put
from a3s_actors.testing._registry import check, expect_equal, refused, unchanged
from a3s_actors.testing.building import NS, OTHER, access, change, create, revise


@check
async def admission_takes_the_current_revision_of_an_active_node_only(repository: MemoryRepository) -> None:
    """An admission of an older or later revision, or of a node that is not active, is refused."""
    for status in MemoryStatus:
        node = await put(repository, status.value, status)
        event = access(f"e-{status.value}", status.value, node.revision)
        if status is MemoryStatus.ACTIVE:
            await repository.record_admission(event)
            continue
        async with unchanged(repository):
            with refused(AdmissionNotAllowed, revision=node.revision, current_status=status.value):
                await repository.record_admission(event)
    await repository.apply(change("r", revise("active", "second")))
    async with unchanged(repository):
        for revision in (1, 3):
            with refused(AdmissionNotAllowed, revision=revision, current_revision=2, current_status="active"):
                await repository.record_admission(access("late", "active", revision))
        with refused(NodeNotFound, node_id="nobody"):
            await repository.record_admission(access("none", "nobody"))
        with refused(NodeNotFound, node_id="active"):
            await repository.record_admission(access("foreign", "active", 2, namespace=OTHER))
    await repository.record_admission(access("now", "active", 2))


@check
async def use_takes_any_revision_that_exists(repository: MemoryRepository) -> None:
    """A use may be of any revision and status; of one that never was it is refused."""
    for status in MemoryStatus:
        node = await put(repository, status.value, status)
        for revision in range(1, node.revision + 1):
            await repository.record_use(access(f"u-{status.value}-{revision}", status.value, revision))
        usage = await repository.usage_summary(NS, status.value)
        expect_equal((usage.admissions, usage.uses), (0, node.revision), "the counts")
        async with unchanged(repository):
            with refused(NodeRevisionNotFound, node_id=status.value, revision=node.revision + 1):
                await repository.record_use(access("none", status.value, node.revision + 1))
    async with unchanged(repository):
        with refused(NodeNotFound, node_id="nobody"):
            await repository.record_use(access("none", "nobody"))


@check
async def an_event_is_not_before_its_revision(repository: MemoryRepository) -> None:
    """An event's time is at or after the time of the revision that it names."""
    await repository.apply(change("k", create("n", second=1), second=1))
    await repository.apply(change("r", revise("n", "second"), second=5))
    async with unchanged(repository):
        with refused(InvalidInput):
            await repository.record_use(access("e", "n", 1, second=0.999999999))
        with refused(InvalidInput):
            await repository.record_admission(access("e", "n", 2, second=4))
    await repository.record_use(access("old", "n", 1, second=1))
    await repository.record_admission(access("new", "n", 2, second=5))


@check
async def an_equal_event_is_a_no_op_and_a_different_one_a_conflict(repository: MemoryRepository) -> None:
    """The same id with equal values changes nothing; with any difference it is a conflict."""
    await repository.apply(change("k", create("n"), create("m")))
    await repository.apply(change("k", create("n", namespace=OTHER), namespace=OTHER))
    event = access("e", "n", context="ctx")
    for record in (repository.record_admission, repository.record_use):
        await record(event)
        async with unchanged(repository):
            await record(event)
            for other in (access("e", "m", context="ctx"), access("e", "n", second=1, context="ctx"), access("e", "n")):
                with refused(IdempotencyConflict, key="e"):
                    await record(other)
    await repository.record_use(access("e", "n", namespace=OTHER))
    usage = await repository.usage_summary(NS, "n")
    expect_equal((usage.admissions, usage.uses), (1, 1), "the counts")
    # A replay stays a no-op after the revision has moved on.
    await repository.apply(change("r", revise("n", "second")))
    await repository.record_admission(event)


@check
async def events_page_in_the_order_of_their_arrival(repository: MemoryRepository) -> None:
    """AccessEvents gives a namespace's events, or one node's, as they came, with a cursor; nothing is altered."""
    await repository.apply(change("k", create("n"), create("m")))
    await repository.apply(change("k", create("n", namespace=OTHER), namespace=OTHER))
    wanted = []
    for number in range(10):
        event = access(f"e{number}", "n" if number % 3 else "m", second=10 - number, context=f"c{number}")
        if number % 2:
            await repository.record_admission(event)
            wanted.append((AccessKind.ADMISSION, event))
        else:
            await repository.record_use(event)
            wanted.append((AccessKind.USE, event))
        await repository.record_use(access(f"x{number}", "n", namespace=OTHER))

    async def read(node_id: str | None) -> list[object]:
        found: list[object] = []
        after: int | None = 0
        while after is not None:
            page = await repository.access_events(NS, node_id, after=after, limit=3)
            found += [(each.kind, each.event) for each in page.records]
            after = page.next_after
        return found

    expect_equal(await read(None), wanted, "the namespace's events")
    for node_id in "nm":
        expect_equal(await read(node_id), [each for each in wanted if each[1].node_id == node_id], "a node's events")
    expect_equal(await read("nobody"), [], "the events of a node that does not exist")


@check
async def event_names_are_kept_as_they_are(repository: MemoryRepository) -> None:
    """Ids and contexts of events come back byte for byte, whatever they look like."""
    await repository.apply(change("k", create("n")))
    digest = "0123456789abcdef" * 4
    names = [f"a3s-code-admission-{digest}", f"a3s-code-context-v2-{digest}", f"a3s-code-admission-{digest.upper()}",
             digest, "\x00", "x" * 256, "中文", "'; --", " padded "]  # fmt: skip
    for number, name in enumerate(names):
        await repository.record_use(access(name if name.strip("\x00") else f"z{name}", "n", context=names[-1 - number]))
    page = await repository.access_events(NS)
    expect_equal(
        [(each.event.id, each.event.context_id) for each in page.records],
        [(name if name.strip("\x00") else f"z{name}", names[-1 - number]) for number, name in enumerate(names)],
        "ids and contexts",
    )


@check
async def usage_of_an_unknown_node_is_refused(repository: MemoryRepository) -> None:
    """UsageSummary is NodeNotFound for a node that the namespace does not have."""
    await repository.apply(change("k", create("n")))
    with refused(NodeNotFound, node_id="m"):
        await repository.usage_summary(NS, "m")
    with refused(NodeNotFound, node_id="n"):
        await repository.usage_summary(OTHER, "n")
