"""The node tests of the onnx package in the evaluator: how many pass, and the rest by reason.

python benchmarks/onnx_nodes.py                # the summary, with each test that fails
python benchmarks/onnx_nodes.py --all          # with each test that is left out, too
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

from node_tests import REASONS, Outcome, cases, evaluate, outcomes

__all__ = ["evaluate"]  # for benchmarks that take an evaluator by name


def summary(results: list[Outcome]) -> list[str]:
    """Lines for people."""
    taken = [result for result in results if not result.reason]
    passed = sum(not result.error for result in taken)
    lines = [f"{passed} of {len(taken)} pass ({passed / len(taken):.1%}); {len(results) - len(taken)} left out"]
    counts = Counter(result.reason for result in results if result.reason)
    return lines + [f"  {count:4} {REASONS[reason]}" for reason, count in counts.most_common()]


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print what is left out by name")
    options = parser.parse_args()
    results = list(outcomes(cases()))
    for result in results:
        if result.error:
            print(f"{result.name}: {result.error[:300]}")
        elif result.reason and options.all:
            print(f"{result.name}: left out: {REASONS[result.reason]}")
    print("\n".join(summary(results)))


if __name__ == "__main__":
    main()
