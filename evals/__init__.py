"""Evaluations and benchmarks. `python -m evals` is the door."""
