"""Commands on the whole file: init, stats, namespaces, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from a3s_actors.cli.app import AsJson, command
from a3s_actors.cli.output import emit, json_text, namespace_text, say, table
from a3s_actors.cli.running import Refused, Where
from a3s_actors.memory.codec import namespace_json
from a3s_actors.memory.values import MemoryStatus

if TYPE_CHECKING:
    from a3s_backends.sqlite.statistics import NamespaceStatistics


@command("init")
async def init(where: Where, json: AsJson = False) -> None:
    """Make a new, empty repository file; an existing one is left as it is."""
    from a3s_backends.sqlite import open_sqlite_repository

    file = where.file
    existed = file.exists()
    async with open_sqlite_repository(file) as repository:
        await repository.namespaces()  # also proves that what was there is a repository
    if json:
        emit(json_text({"file": str(file), "created": not existed}))
    else:
        say(f"{file}: {'is there already, nothing changed' if existed else 'created'}")


@command("stats")
async def stats(where: Where, json: AsJson = False) -> None:
    """Count memories, change sets and audit events: of the file, or of one namespace when it is named."""
    wanted = where.namespace if where.names_part_of_namespace else None
    async with where.open() as repository:
        counts = await repository.statistics()
    spaces = [each for each in counts.namespaces if wanted in {None, each.namespace}]
    if json:
        emit(
            f'{{"schema":{counts.schema},"databaseBytes":{counts.database_bytes},"freeBytes":{counts.free_bytes}'
            f',"purgePending":{json_text(counts.purge_pending)},"namespaces":[{",".join(map(_space_json, spaces))}]}}'
        )
        return
    say(
        f"{where.file}: schema {counts.schema}, {counts.database_bytes:,} bytes"
        + (f", {counts.free_bytes:,} free" if counts.free_bytes else "")
        + (", erased bytes pending" if counts.purge_pending else "")
    )
    if not spaces:
        say("no memories")
        return
    statuses = list(MemoryStatus)
    table(
        ["namespace", *(status.value for status in statuses), "bytes", "token", "admissions and uses"],
        (
            [
                namespace_text(each.namespace),
                *(str(each.nodes[status]) for status in statuses),
                f"{each.bytes:,}",
                str(each.sequence),
                str(each.access_events),
            ]
            for each in spaces
        ),
        wide="namespace",
    )


def _space_json(each: NamespaceStatistics) -> str:
    nodes = json_text({status.value: count for status, count in each.nodes.items()})
    return (
        f'{{"namespace":{namespace_json(each.namespace)},"nodes":{nodes},"bytes":{each.bytes}'
        f',"sequence":{each.sequence},"changeSets":{each.change_sets},"accessEvents":{each.access_events}'
        f',"purges":{each.purges}}}'
    )


@command("namespaces")
async def namespaces(where: Where, json: AsJson = False) -> None:
    """List the exact namespaces of the file."""
    async with where.open() as repository:
        found = await repository.namespaces()
    if json:
        emit(f'{{"namespaces":[{",".join(map(namespace_json, found))}]}}')
    elif not found:
        say("no namespaces")
    else:
        table(
            ["tenant", "principal", "scope"],
            ([each.tenant_id, each.principal_id, each.scope_id] for each in found),
            wide="scope",
        )


@command("verify")
async def verify(where: Where, json: AsJson = False) -> None:
    """Check the file: pages, digests, sums, histories, graph rules, index against texts, audit counts."""
    async with where.open() as repository:
        findings = await repository.verify()
        counts = await repository.statistics()
    nodes = sum(sum(each.nodes.values()) for each in counts.namespaces)
    if json:
        listed = json_text([{"where": each.where, "message": each.message} for each in findings])
        emit(f'{{"ok":{json_text(not findings)},"nodes":{nodes},"findings":{listed}}}')
    else:
        for each in findings:
            say(f"damaged: {each.where}: {each.message}", style="red")
        if not findings:
            say(f"ok: {nodes} memories in {len(counts.namespaces)} namespaces, nothing damaged", style="green")
    if findings:
        raise Refused(f"{len(findings)} findings; leave the file as it is and restore a backup")
