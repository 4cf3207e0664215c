"""A Python with everything imported that forks for each command line, so that a command takes its own time alone."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_PRELOADED = (
    "exportguard.commands.validate",
    "onnxruntime",
    "torch._dynamo.exc",
    "torch._export.non_strict_utils",
    "torch._functorch.aot_autograd",
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
    "transformers.cache_utils",
    "transformers.masking_utils",
    "transformers.modeling_utils",
)
_UNCAUGHT = 70  # "internal software error" of sysexits.h


class Fork:
    """A running command of a `ForkServer`."""

    def __init__(self, pid: int, replies: IO[bytes]) -> None:
        self.pid = pid
        self._replies = replies
        self._code: int | None = None

    def poll(self, timeout_s: float = 0.0) -> int | None:
        """The exit code, negative for a signal; None while it runs. Waits for it up to the time-out."""
        if self._code is None and select.select([self._replies], [], [], timeout_s)[0]:
            self._code = _number(self._replies)
        return self._code

    def kill(self) -> int:
        """Ends it if it still runs, and gives its exit code."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._code = _number(self._replies)
        assert self._code is not None
        return self._code


class ForkServer:
    """Starts commands of `exportguard`, one after the other, each in a process of its own. `close` lets it end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # `Fork.poll` must see what was not read yet
        )
        self.close = weakref.finalize(self, self._process.communicate)

    def start(self, arguments: Sequence[str], output: Path) -> Fork:
        """Runs `exportguard ARGUMENTS` with what it prints in the file `output`. The one before must have ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), str(output)]).encode() + b"\n")
        return Fork(_number(self._process.stdout), self._process.stdout)


def serve(requests: IO[str], replies: IO[str]) -> None:
    """For each request a fork: first its process number, then its exit code."""
    for name in _PRELOADED:
        importlib.import_module(name)
    for line in requests:
        arguments, output = json.loads(line)
        pid = os.fork()
        if not pid:
            _run(arguments, output)
        print(pid, file=replies, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=replies, flush=True)


def _run(arguments: Sequence[str], output: str) -> None:
    """The forked process' life: does not return."""
    code = _UNCAUGHT
    try:
        _redirect(output)
        from ..command_line import main

        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(output: str) -> None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def _number(replies: IO[bytes]) -> int:
    line = replies.readline()
    if not line:
        raise ChildProcessError("the process that forks for each model has ended; its error stands above")
    return int(line)


def main() -> None:
    """The server's life: requests on the standard input, replies on what was the standard output."""
    # What a library prints while it is imported must not stand among the replies.
    with os.fdopen(os.dup(1), "w", encoding="ascii") as replies:
        os.dup2(2, 1)
        serve(sys.stdin, replies)
