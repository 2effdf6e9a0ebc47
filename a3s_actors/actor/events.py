"""Warnings as structured events with stable names."""

from __future__ import annotations

import sys

__all__ = ["warn"]


def warn(logger: str, event: str, **fields: object) -> None:
    """Log a warning through structlog, as the host has configured it; to stderr where it has not.

    The package is imported with the first warning: that is slow, and hardly ever needed. Fields hold names, counts
    and types, never what a memory or a message says.
    """
    import structlog

    if structlog.is_configured():
        log = structlog.get_logger(logger)
    else:
        # Its default is stdout, which belongs to the program's own output.
        log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr)).bind(source=logger)
    log.warning(event, **fields)
