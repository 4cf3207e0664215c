"""Many models validated, each in a process of its own, here or on a cluster, and the tables of what became of them."""

from .run import SweepCase, SweepOptions, SweepResult, kept_results, shipped_cases, sweep, sweep_cases

__all__ = ["SweepCase", "SweepOptions", "SweepResult", "kept_results", "shipped_cases", "sweep", "sweep_cases"]
