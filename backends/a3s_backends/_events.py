"""Warnings of the backends, as structured events with stable names."""

from __future__ import annotations

__all__ = ["warn"]


def warn(logger: str, event: str, **fields: object) -> None:
    """Log a warning. The logging package is imported with the first one: it is slow to import and hardly needed."""
    import structlog

    structlog.get_logger(logger).warning(event, **fields)
