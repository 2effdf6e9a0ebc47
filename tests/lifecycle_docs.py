"""The pages' tables and diagrams, made from the transition tables of the code."""

from __future__ import annotations

from a3s_actors.agent.runs import RUN, RunState
from a3s_actors.memory.operations import OPERATION_TYPES, Activate, Create, SetStatus
from a3s_actors.memory.transitions import CREATABLE, OPERATION_STATUSES, REQUIRED_RELATION, STATUS_TRANSITIONS
from a3s_actors.memory.values import MemoryStatus


def operations_table() -> str:
    """Return a row for each operation: the statuses it may meet and where it leads."""
    lines = ["| operation | on a node that is | leads to |", "| --- | --- | --- |"]
    for operation in OPERATION_TYPES:
        if operation is Create:
            lines.append(f"| `{operation.tag}` | not there | {_names(CREATABLE)} |")
        elif operation is SetStatus:
            for start, ends in STATUS_TRANSITIONS.items():
                lines.append(f"| `{operation.tag}` | {start.value} | {_names(ends) or 'nothing'} |")
        else:
            leads = "active" if operation is Activate else "the same status"
            lines.append(f"| `{operation.tag}` | {_names(OPERATION_STATUSES[operation])} | {leads} |")
    return "\n".join(lines)


def diagram() -> str:
    """Return the life cycle as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {status.value}: create" for status in MemoryStatus if status in CREATABLE]
    lines.append("    candidate --> active: activate")
    for start, ends in STATUS_TRANSITIONS.items():
        lines += [f"    {start.value} --> {end.value}: set_status" for end in MemoryStatus if end in ends]
    return "\n".join([*lines, "```"])


def run_diagram() -> str:
    """Return a run's life as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {RunState.RUNNING.value}: reserve"]
    lines += [f"    {state.value} --> {following.value}: {step.value}" for state, step, following in RUN]
    return "\n".join([*lines, "```"])


def requirements_table() -> str:
    """Return the relation that each status requires."""
    lines = ["| status | needs a relation |", "| --- | --- |"]
    lines += [f"| {status.value} | {relation.value} |" for status, relation in REQUIRED_RELATION.items()]
    return "\n".join(lines)


def _names(statuses: frozenset[MemoryStatus]) -> str:
    return ", ".join(status.value for status in MemoryStatus if status in statuses)
