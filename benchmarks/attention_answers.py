"""What the installed onnxruntime gives where releases of its `Attention` differ, beside what torch gives.

    python benchmarks/attention_answers.py

For another release, put it into a folder and in front of the path:

    pip install --no-deps --target older onnxruntime==1.26.0
    PYTHONPATH=older python benchmarks/attention_answers.py
"""

from __future__ import annotations

import onnxruntime

from exportguard.opsets import attention_answers, default_opset


def main() -> None:
    """Prints a line."""
    answers = attention_answers(23)
    told = "no kernel" if answers is None else "a query that sees no key {:.3g} (torch 0), a softcap {:.3g} (torch 1)"
    print(f"onnxruntime {onnxruntime.__version__}: {told.format(*answers or ())}; opset {default_opset()}")


if __name__ == "__main__":
    main()
