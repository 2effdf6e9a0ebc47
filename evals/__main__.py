"""`python -m evals list | bench NAME… [--all] [--json FILE] [--html FILE] | faults NAME [--stride N] [--seed N]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evals.bench import BENCHES
from evals.faults import FAULTS
from evals.report import to_html, to_json, to_table


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evals", description="Evaluations and benchmarks of a3s-actors.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what there is to run")
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
        for name, (description, _) in BENCHES.items():
            print(f"bench  {name:10} {description}")
        for name, (description, _) in FAULTS.items():
            print(f"faults {name:10} {description}")
        return 0
    if options.command == "faults":
        return _faults(options)
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


def _faults(options: argparse.Namespace) -> int:
    reports = [FAULTS[name][1](max(1, options.stride), options.seed, options.seconds) for name in options.names]
    for report in reports:
        print(report.to_text())
        if options.json:
            options.json.write_text(report.to_json(), encoding="utf-8")
    return int(any(report.failures for report in reports))


if __name__ == "__main__":
    sys.exit(main())
