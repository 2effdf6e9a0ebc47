"""`python -m evals list | run NAME… | bench NAME… | faults NAME…`; `run` and `bench` take `--all`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evals.bench import BENCHES
from evals.faults import FAULTS
from evals.gates import gates
from evals.gates.page import gates_to_html, gates_to_json
from evals.gates.running import run_gates
from evals.report import to_html, to_json, to_table


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evals", description="Evaluations and benchmarks of a3s-actors.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what there is to run")
    run = commands.add_parser("run", help="run gates; exit code 1 when one fails")
    run.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(gates())}")
    run.add_argument("--all", action="store_true", help="run every gate")
    run.add_argument("--break", dest="broken", metavar="RULE", help="break a rule on purpose: the gate must fail")
    run.add_argument("--json", type=Path, metavar="FILE", help="also write what was found as JSON")
    run.add_argument("--html", type=Path, metavar="FILE", help="also write one page with plots that needs no network")
    bench = commands.add_parser("bench", help="measure, each figure beside a baseline of the same run")
    bench.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHES)}")
    bench.add_argument("--all", action="store_true", help="run every benchmark")
    bench.add_argument("--scale", type=float, default=1.0, help="size of the data relative to the full one (default 1)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    bench.add_argument("--html", type=Path, metavar="FILE", help="also write one page that needs no network")
    faults = commands.add_parser("faults", help="provoke faults and check what has to hold")
    faults.add_argument("names", nargs="+", metavar="NAME", choices=list(FAULTS), help=f"of: {', '.join(FAULTS)}")
    faults.add_argument("--stride", type=int, default=1, help="try each N-th place only (default: every one)")
    faults.add_argument("--seed", type=int, default=0, help="chooses what is not enumerated (default 0)")
    faults.add_argument("--seconds", type=float, default=60.0, help="how long timed runs last (default 60)")
    faults.add_argument("--json", type=Path, metavar="FILE", help="also write the counts as JSON")
    options = parser.parse_args(arguments)
    if options.command == "list":
        for gate in gates().values():
            print(f"run    {gate.name:20} {gate.description}")
        for name, (description, _) in BENCHES.items():
            print(f"bench  {name:20} {description}")
        for name, (description, _) in FAULTS.items():
            print(f"faults {name:20} {description}")
        return 0
    if options.command == "faults":
        return _faults(options)
    if options.command == "run":
        return _run(parser, options)
    names = list(BENCHES) if options.all else options.names
    unknown = [name for name in names if name not in BENCHES]
    if unknown or not names:
        parser.error(f"name one of: {', '.join(BENCHES)}; or --all")
    if not 0 < options.scale <= 1:
        parser.error("--scale: a number above 0 and up to 1")
    rows = []
    for name in names:
        for row in BENCHES[name][1](options.scale):
            rows.append(row)
            print(f"  {row.name}: {row.figure}", file=sys.stderr, flush=True)
    print(to_table(rows))
    if options.json:
        options.json.write_text(to_json(rows), encoding="utf-8")
    if options.html:
        options.html.write_text(to_html(rows), encoding="utf-8")
    return 0


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    known = gates()
    names = list(known) if options.all else options.names
    if not names or any(name not in known for name in names):
        parser.error(f"name one of: {', '.join(known)}; or --all")
    chosen = [known[name] for name in names]
    rules = [rule.name for gate in chosen for rule in gate.rules]
    if options.broken is not None and options.broken not in rules:
        parser.error(f"--break: name one of: {', '.join(rules)}")
    reports = run_gates(chosen, options.broken)
    if options.json:
        options.json.write_text(gates_to_json(reports), encoding="utf-8")
    if options.html:
        options.html.write_text(gates_to_html(reports), encoding="utf-8")
    return int(not all(report.passed for report in reports))


def _faults(options: argparse.Namespace) -> int:
    reports = [FAULTS[name][1](max(1, options.stride), options.seed, options.seconds) for name in options.names]
    for report in reports:
        print(report.to_text())
        if options.json:
            options.json.write_text(report.to_json(), encoding="utf-8")
    return int(any(report.failures for report in reports))


if __name__ == "__main__":
    sys.exit(main())
