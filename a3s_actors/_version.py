"""The version of a3s-actors, the one place that names it."""

__version__ = "0.1.0"
