"""Validates many models, each in a process of its own, bounded in time and memory; what is done is not done again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ..errors import InvalidArgumentError
from ..models import architectures, models_of_task, tasks
from ..onnx_model import made_folder
from .commit import commit_of_sources
from .forks import Fork, ForkServer

Outcome = Literal["ok", "wrong", "failed", "cannot run eagerly", "timed out", "out of memory", "crashed"]
_POLL_S = 0.1
_USAGE = 2  # the exit code for a model that cannot be built for the task


@dataclass(frozen=True, kw_only=True)
class SweepCase:
    """One model with one task."""

    model: str
    task: str

    @property
    def file_name(self) -> str:
        """Where its result is kept."""
        return f"{self.task}--{self.model.replace('/', '--')}.json"


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """How each model is validated; `arguments` go to `exportguard validate` as they are."""

    folder: Path
    timeout_s: float = 300.0
    memory_mib: int = 8192
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What became of one case; `reason` is empty if it is right. `inputs` names those that change in size.

    `commit` is that of exportguard, empty where it does not run from a checkout. `beside` is what the runner beside
    came to, empty where none ran: it is no part of the outcome, even where it took the process down.
    """

    model: str
    task: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    nodes: int = 0
    axes: int = 0
    comparisons: int = 0
    inputs: str = ""
    commit: str = ""
    beside: str = ""
    beside_reason: str = ""


def sweep_cases(task_names: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[SweepCase]:
    """Every model type that transformers has for the tasks (all of them by default) and whose name has a pattern in it.

    Raises:
        InvalidArgumentError: an unknown task, or nothing to do.
    """
    unknown = [name for name in task_names if name not in tasks()]
    if unknown:
        raise InvalidArgumentError(f"unknown task {unknown[0]!r}; known are {', '.join(tasks())}")
    every = (SweepCase(model=model, task=task) for task in task_names or tasks() for model in models_of_task(task))
    return _chosen(every, task_names, patterns)


def shipped_cases(task_names: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[SweepCase]:
    """The architectures shipped as data, each with the task it is shipped for; of those the ones that are asked for.

    Raises:
        InvalidArgumentError: nothing to do.
    """
    every = (SweepCase(model=name, task=architecture.task) for name, architecture in architectures().items())
    return _chosen((case for case in every if not task_names or case.task in task_names), task_names, patterns)


def _chosen(every: Iterable[SweepCase], task_names: Sequence[str], patterns: Sequence[str]) -> list[SweepCase]:
    cases = [case for case in every if not patterns or any(pattern in case.model for pattern in patterns)]
    if not cases:
        where = ", ".join(task_names) or "any task"
        named = f" has {' or '.join(patterns)} in its name" if patterns else " is among them"
        raise InvalidArgumentError(f"no model of {where}{named}; `exportguard models` lists the names")
    return cases


def sweep(cases: Sequence[SweepCase], options: SweepOptions, executor: Executor) -> Iterator[SweepResult]:
    """Yields each result when it is there, those of an earlier sweep into the same folder first.

    The executor only waits for processes: threads will do here, and a cluster's elsewhere (`executors`). Results are
    kept in the folder on this side; the other side does not see it.
    """
    made_folder(options.folder)
    done = {case: result for case in cases if (result := _kept(case, options)) is not None}
    yield from done.values()
    waiting = [executor.submit(run_case, case, options) for case in cases if case not in done]
    for future in as_completed(waiting):
        result = future.result()
        _keep(result, options)
        yield result


def kept_results(folder: Path) -> list[SweepResult]:
    """What sweeps into the folder, or into folders below it, found.

    Raises:
        InvalidArgumentError: nothing is there.
    """
    results = [SweepResult(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.rglob("*--*.json")]
    if not results:
        raise InvalidArgumentError(f"{folder} holds no results; pass the folder that `exportguard sweep -o` wrote to")
    return sorted(results, key=lambda result: (result.task, result.model))


def run_case(case: SweepCase, options: SweepOptions) -> SweepResult:
    """Validates one model in a process of its own."""
    start = time.monotonic()
    with TemporaryDirectory(prefix="exportguard-sweep-") as folder:
        report, output = Path(folder, "report"), Path(folder, "log")
        arguments = ["validate", "-v", "0", "-m", case.model, "-t", case.task, "--json", str(report)]
        ended = _ended(_started([*arguments, *options.arguments], output), output, options)
        found = _read_report(report) if ended is None else _settled_before(report, ended)
    seconds = round(time.monotonic() - start, 1)
    return SweepResult(model=case.model, task=case.task, seconds=seconds, commit=commit_of_sources(), **found)


_own = threading.local()  # each waiting thread has a server, which runs one command at a time


def _started(arguments: Sequence[str], output: Path) -> Fork:
    if not hasattr(_own, "server"):
        _own.server = ForkServer()
    server: ForkServer = _own.server
    return server.start(arguments, output)


def _keep(result: SweepResult, options: SweepOptions) -> None:
    path = options.folder / SweepCase(model=result.model, task=result.task).file_name
    path.write_text(json.dumps(asdict(result)), encoding="utf-8")


def _kept(case: SweepCase, options: SweepOptions) -> SweepResult | None:
    path = options.folder / case.file_name
    if not path.is_file():
        return None
    return SweepResult(**json.loads(path.read_text(encoding="utf-8")))


def _ended(process: Fork, output: Path, options: SweepOptions) -> dict[str, Any] | None:
    """Waits for its end. If it writes no report: what happened instead."""
    deadline = time.monotonic() + options.timeout_s
    excess: dict[str, Any] | None = None
    while process.poll(_POLL_S) is None and excess is None:
        excess = _excess(process.pid, deadline, options)
    code = process.kill()
    return excess or _ended_early(code, output.read_text(encoding="utf-8", errors="replace"))


def _ended_early(code: int, output: str) -> dict[str, Any] | None:
    if code in (0, 1):
        return None
    last = next((line for line in reversed(output.splitlines()) if line.strip()), f"exit code {code}")
    return {"outcome": "cannot run eagerly" if code == _USAGE else "crashed", "reason": last[:500]}


def _excess(pid: int, deadline: float, options: SweepOptions) -> dict[str, Any] | None:
    if time.monotonic() > deadline:
        return {"outcome": "timed out", "reason": f"took longer than {options.timeout_s:.0f} s"}
    if _resident_mib(pid) > options.memory_mib:
        return {"outcome": "out of memory", "reason": f"needed more than {options.memory_mib} MiB"}
    return None


def _resident_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # it has ended
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def _read_report(path: Path) -> dict[str, Any]:
    """The part of a validation report that a sweep keeps."""
    report = json.loads(path.read_text(encoding="utf-8"))
    counts = {"nodes": report["node_count"], "axes": len(report["axes"]), "comparisons": len(report["sets"])}
    inputs = ", ".join(dict.fromkeys(axis["input"].partition(".")[0] for axis in report["axes"]))
    beside = report.get("beside") or {"outcome": "", "reason": ""}
    told = {"beside": beside["outcome"], "beside_reason": beside["reason"][:1000]}
    return {"outcome": _outcome(report), "reason": _reason(report), "inputs": inputs, **counts, **told}


def _settled_before(path: Path, ended: dict[str, Any]) -> dict[str, Any]:
    """What a process came to that was ended: where its report was there by then, the runner beside ended it."""
    try:
        found = _read_report(path)
    except (OSError, ValueError):
        return ended
    return {**found, "beside": ended["outcome"], "beside_reason": ended["reason"]}


def _outcome(report: Mapping[str, Any]) -> Outcome:
    if report["ok"]:
        return "ok"
    if report["failure"]:
        return "failed" if "eager" in report["seconds"] else "cannot run eagerly"
    return "wrong"


def _reason(report: Mapping[str, Any]) -> str:
    axes = [axis for axis in report["axes"] if not axis["kept"]]
    fixed = [f"{axis['input']} axis {axis['axis']} fixed {axis['reason']}" for axis in axes]
    wrong = [f"{inputs['name']}: {inputs['error'] or 'differs'}" for inputs in report["sets"] if not inputs["agrees"]]
    return "; ".join([*filter(None, [report["failure"]]), *fixed, *wrong])[:1000]
