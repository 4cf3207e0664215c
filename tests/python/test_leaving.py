"""The end of the program: its memory is left to the system, and nothing that it promised is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str, *before: str) -> subprocess.CompletedProcess[str]:
    """A program that leaves with 3, in whose modules something stands that tells when Python takes it apart."""
    text = f"from exportguard.leaving import leave\n{program}\nleave(3)\n"
    return subprocess.run([sys.executable, *before, "-c", text], capture_output=True, text=True, check=False)


TAKEN_APART = "class Kept:\n    def __del__(self): print('taken apart', flush=True)\nkept = Kept()"
UNHEARD = "import functools, os, sys\nunheard = functools.partial(print, file=open(os.devnull, 'w'))"  # holds no module


def test_the_code_is_given_and_modules_are_not_taken_apart() -> None:
    done = run(TAKEN_APART)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_what_was_printed_is_written_and_what_was_registered_is_called() -> None:
    program = "import atexit, weakref\nclass Held: pass\nheld = Held()\nweakref.finalize(held, print, 'finalized')\n"
    done = run(program + "atexit.register(print, 'registered')\nprint('printed', end=' ')")
    assert done.returncode == 3
    assert done.stdout == "printed registered\nfinalized\n"


@pytest.mark.parametrize(
    "watching",
    [
        f"{UNHEARD}\nsys.settrace(unheard)",
        f"{UNHEARD}\nsys.setprofile(unheard)",
        "import threading\nthreading.Thread(target=lambda: (__import__('time').sleep(0.3), print('ended'))).start()",
    ],
)
def test_what_watches_the_program_and_threads_that_run_see_the_usual_end(watching: str) -> None:
    done = run(f"{TAKEN_APART}\n{watching}")
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == "taken apart"
    assert ("ended" in done.stdout) == ("Thread" in watching)


def test_a_profiler_of_the_whole_program_writes_what_it_saw(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("from exportguard.leaving import leave\nleave(0)\n", encoding="utf-8")
    command = [sys.executable, "-m", "cProfile", "-o", str(tmp_path / "seen"), str(script)]
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "seen").stat().st_size
