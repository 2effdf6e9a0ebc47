"""The main job, on a working log that ships with the project: from notes to memories that an agent may rely on."""

from __future__ import annotations

import secrets
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a3s_actors.cli.app import command
from a3s_actors.cli.changing import Steps, conflict_steps, supersession, tombstone_steps
from a3s_actors.cli.demo_processes import in_new_process, kill_a_writer
from a3s_actors.cli.demo_script import Script, data_folder, read_script
from a3s_actors.cli.demo_session import sessions
from a3s_actors.cli.files import import_source
from a3s_actors.cli.output import brief_id, console, one_line, say
from a3s_actors.cli.reading import print_hits
from a3s_actors.cli.reasons import ReasonStore
from a3s_actors.cli.running import BadInput, Refused, Where
from a3s_actors.cli.sources import read_source, text_id
from a3s_actors.cli.values import Decision
from a3s_actors.memory.operations import Corroborate, MemoryChangeSet, Revise, RevisionMode
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import (
    AccessEvent,
    EvidenceKind,
    EvidenceRef,
    MemoryKind,
    MemoryNamespace,
    NodeHead,
    RelationKind,
)
from a3s_actors.recall import DurableMemoryActivation, DurableMemoryRecallPolicy, RecallHit, lexical_recall

if TYPE_CHECKING:
    from a3s_actors.memory.repository import MemoryRepository

_NAMESPACE = MemoryNamespace("demo", "team", "working-log")
_WRITER = MemoryNamespace("demo", "team", "killed-writer")


class _Demo:
    """The steps of the demo, on one open repository."""

    def __init__(self, repository: MemoryRepository, script: Script, reasons: ReasonStore) -> None:
        self.repository = repository
        self.script = script
        self.reasons = reasons
        self.counts: dict[str, int] = {}

    def _decision(self, reason: str) -> Decision:
        at, key = Timestamp.now(), f"demo-{secrets.token_hex(16)}"
        return Decision(at, key, self.reasons.keep(reason, _NAMESPACE, key, at))

    async def _head(self, text: str) -> NodeHead:
        node_id = text_id(text)
        heads = await self.repository.get_heads(_NAMESPACE, [node_id])
        if node_id not in heads:
            raise Refused("the demo's script names a memory that its files do not have")
        return heads[node_id]

    async def _apply(self, steps: Steps, chosen: Decision) -> None:
        await self.repository.apply(steps.change_set(_NAMESPACE, chosen))

    async def import_files(self) -> None:
        """Propose every paragraph and list item of the log."""
        for name in self.script.files:
            source = read_source(data_folder() / name, MemoryKind.EPISODIC, {"file": name}, name)
            counts = await import_source(self.repository, _NAMESPACE, source, Timestamp.now())
            self.counts["imported"] = self.counts.get("imported", 0) + counts.added
            say(f"  {name}: {counts.added} candidates" + (f", {counts.known} known" if counts.known else ""))

    async def activate(self) -> None:
        """Activate what the team has checked, each with a reason."""
        for step in self.script.activate:
            head, chosen = await self._head(step.memory), self._decision(step.reason)
            activation = DurableMemoryActivation(
                idempotency_key=chosen.key,
                node_id=head.id,
                expected_revision=head.revision,
                decision_evidence=chosen.evidence,
                occurred_at=chosen.at,
            )
            await self.repository.apply(activation.change_set(_NAMESPACE))
        for step in self.script.activate[:3]:
            say(f"  {one_line(step.memory)}")
            say(f"      because: {step.reason}", style="dim")
        say(f"  … {len(self.script.activate)} in all", style="dim")

    async def corroborate(self) -> None:
        """Add what other sources say."""
        for step in self.script.corroborate:
            head, at = await self._head(step.memory), Timestamp.now()
            source = EvidenceRef(
                uri=step.uri, digest=f"sha256:{text_id(step.text)}", kind=EvidenceKind.VERIFICATION, occurred_at=at
            )
            operation = Corroborate(head.id, expected_revision=head.revision, evidence=(source,))
            await self.repository.apply(
                MemoryChangeSet(
                    idempotency_key=f"demo-{secrets.token_hex(16)}",
                    namespace=_NAMESPACE,
                    occurred_at=at,
                    operations=(operation,),
                )
            )
            say(f"  {one_line(step.memory)}")
            say(f"      {step.uri}", style="dim")

    async def revise(self) -> None:
        """Correct and refine texts; the earlier ones stay in the history."""
        for step in self.script.revise:
            head, chosen = await self._head(step.memory), self._decision(step.reason)
            operation = Revise(
                head.id,
                expected_revision=head.revision,
                content=step.content,
                mode=RevisionMode(step.mode),
                evidence=chosen.items,
            )
            await self.repository.apply(
                MemoryChangeSet(
                    idempotency_key=chosen.key, namespace=_NAMESPACE, occurred_at=chosen.at, operations=(operation,)
                )
            )
            say(f"  {step.mode}: {one_line(step.memory)}")
            say(f"      now: {one_line(step.content)}", style="dim")

    async def supersede(self) -> None:
        """Replace old decisions, each in one change set."""
        for step in self.script.supersede:
            old, new, chosen = await self._head(step.old), await self._head(step.new), self._decision(step.reason)
            await self._apply(supersession(old, new, chosen), chosen)
            say(f"  {one_line(step.old)}")
            say(f"      superseded by: {one_line(step.new)}", style="dim")

    async def conflict(self) -> None:
        """Record contradictions; marked ones are not served."""
        for step in self.script.conflict:
            a, b, chosen = await self._head(step.a), await self._head(step.b), self._decision(step.reason)
            await self._apply(conflict_steps(a, b, chosen, mark=step.mark), chosen)
            say(f"  {one_line(step.a)}")
            say(f"      against: {one_line(step.b)}" + ("  (neither is served)" if step.mark else ""), style="dim")

    async def relate(self) -> None:
        """Relate memories that belong together."""
        for step in self.script.relate:
            a, b, chosen = await self._head(step.a), await self._head(step.b), self._decision(step.reason)
            steps = Steps()
            steps.add_relation(a, RelationKind.RELATED_TO, b)
            await self._apply(steps, chosen)
        say(f"  {len(self.script.relate)} pairs")

    async def tombstone(self) -> None:
        """End the service of what must never be served."""
        for step in self.script.tombstone:
            head, chosen = await self._head(step.memory), self._decision(step.reason)
            await self._apply(tombstone_steps(head, chosen), chosen)
            say(f"  {one_line(step.memory)}")
            say(f"      because: {step.reason}", style="dim")

    async def recall(self) -> None:
        """Ask questions, check the answers, and record what entered a context."""
        for number, step in enumerate(self.script.recall, start=1):
            policy = DurableMemoryRecallPolicy(step.max_results, step.min_score, step.related)
            hits = await lexical_recall(self.repository, _NAMESPACE, policy, step.question)
            say(f"  ? {step.question}", style="bold")
            if number in {1, len(self.script.recall)}:
                print_hits(hits, self.reasons)
            else:
                for hit in hits:
                    origin = "" if hit.related_from is None else f", from {brief_id(hit.related_from)}"
                    say(f"    {hit.score:.2f} {one_line(hit.content)}  ({hit.channel.value}{origin})")
            self._check(step.expect_first, step.absent, hits)
            await self._admit(hits, f"demo-context-{number}")
        self.counts["questions"] = len(self.script.recall)

    @staticmethod
    def _check(expected: str, absent: Sequence[str], hits: tuple[RecallHit, ...]) -> None:
        if not hits or hits[0].content != expected:
            raise Refused("the recall did not find what the script expects first")
        if any(hit.content in absent for hit in hits):
            raise Refused("the recall served what the script says must not be served")

    async def _admit(self, hits: tuple[RecallHit, ...], context: str) -> None:
        for hit in hits:
            await self.repository.record_admission(
                AccessEvent(
                    id=f"{context}-{hit.node_id}",
                    namespace=_NAMESPACE,
                    node_id=hit.node_id,
                    node_revision=hit.node_revision,
                    occurred_at=Timestamp.now(),
                    context_id=context,
                )
            )
            self.counts["admissions"] = self.counts.get("admissions", 0) + 1


def _title(text: str) -> None:
    say("")
    say(text, style="bold cyan")


@command("demo")
async def demo(
    where: Where,
    keep: Annotated[Path | None, typer.Option("--in", metavar="DIR", help="A new folder for the demo's files.")] = None,
) -> None:
    """Show the main job on a software team's working log in English and Chinese; takes a few seconds."""
    if where.db:
        say("the demo makes a file of its own; --db and A3S_DB are left alone", style="dim")
    script = read_script()
    file = _folder(keep) / "memory.db"
    from a3s_backends.sqlite import open_sqlite_repository

    async with open_sqlite_repository(file) as repository:
        demo_run = _Demo(repository, script, ReasonStore(file))
        _title("1. Import: every paragraph and list item of the log becomes a candidate with evidence")
        await demo_run.import_files()
        _title("2. Review: only what somebody has checked may serve")
        await demo_run.activate()
        _title("3. Corroborate: other sources say the same")
        await demo_run.corroborate()
        _title("4. Correct and refine: earlier texts stay in the history")
        await demo_run.revise()
        _title("5. Supersede: new decisions take the place of old ones")
        await demo_run.supersede()
        _title("6. Conflicts: contradictions are recorded, not averaged")
        await demo_run.conflict()
        _title("7. Relate what belongs together, tombstone what must not serve")
        await demo_run.relate()
        await demo_run.tombstone()
        _title("8. Recall, with provenance; each answer is checked and its admission recorded")
        await demo_run.recall()
    _title("9. Agent sessions: one process learns, somebody decides, another process recalls")
    demo_run.counts["admissions"] += await sessions(file, _NAMESPACE)
    _title("10. Kill a writer in the middle of its work, and look from a new process")
    before = await in_new_process(file, _NAMESPACE, "snapshot")
    acknowledged = await kill_a_writer(file, _WRITER)
    verified = await in_new_process(file, _NAMESPACE, "verify")
    listed = await in_new_process(file, _WRITER, "list", "--limit", "1000000")
    after = await in_new_process(file, _NAMESPACE, "snapshot")
    stored = {node["id"] for node in listed["nodes"]}
    missing = [node_id for node_id in acknowledged if node_id not in stored]
    if missing or after != before:
        raise Refused("something that was acknowledged is missing after the kill")
    say(f"  {len(acknowledged)} proposals were acknowledged before SIGKILL, {len(stored)} are stored, none is missing")
    say(f"  the log's memories are the same: {after['digest'][:19]}…, {after['nodeCount']} active")
    say(f"  verify: {verified['nodes']} memories, nothing damaged", style="green")
    _last_page(file, script, demo_run.counts)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="a3s-demo-"))
    try:
        keep.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise BadInput(f"{keep}: is there already; name a new folder") from None
    return keep


def _last_page(file: Path, script: Script, counts: dict[str, int]) -> None:
    from rich.panel import Panel
    from rich.text import Text

    lines = [
        f"{counts['imported']} candidates imported, {len(script.activate)} activated, "
        f"{len(script.corroborate)} corroborated, {len(script.revise)} revised,",
        f"{len(script.supersede)} superseded, {len(script.conflict)} in conflict, {len(script.relate)} related, "
        f"{len(script.tombstone)} tombstoned;",
        f"{counts['questions']} questions answered, {counts['admissions']} admissions recorded, "
        "two conversations, one writer killed.",
        "",
        f"The file:   {file}",
        "Look at it:",
        f"  export A3S_DB={shlex.quote(str(file))}",
        f"  export A3S_TENANT={_NAMESPACE.tenant_id} A3S_PRINCIPAL={_NAMESPACE.principal_id}"
        f" A3S_SCOPE={_NAMESPACE.scope_id}",
        "  a3s-actors list --status superseded",
        f"  a3s-actors history {text_id(script.revise[0].memory)[:12]}",
        f"  a3s-actors audit {text_id(script.recall[0].expect_first)[:12]}",
        "  a3s-actors review",
        "  a3s-actors chat --script example",
    ]
    say("")
    console().print(Panel(Text("\n".join(lines)), title="What happened", expand=False), soft_wrap=True)
