"""The streams of the command line: full, closed, in other letters, and a program that is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: What click prints, what rich prints, and what is printed; some of it more than a buffer takes.
PRINTING = [
    ["--help"],
    ["--version"],
    ["models", "bert"],
    ["models"],
    ["patches", "show", "packed", "--format", "text"],
]
#: By turns with a buffer and without one, and what is printed in each way, in both.
BUFFERED = [*zip(PRINTING, ["", "1"] * 3, strict=False), (PRINTING[0], "1"), (PRINTING[3], "")]
IDS = [f"{' '.join(arguments)}{' unbuffered' if unbuffered else ''}" for arguments, unbuffered in BUFFERED]
FULL = "Error: cannot write the standard output: No space left on device; free some space, or send it elsewhere\n"


def command(arguments: list[str], shell: str = "") -> str:
    """The command line of a shell; `shell` is what stands behind it."""
    return f"exec {sys.executable} -m exportguard {' '.join(arguments)} {shell}"


def run(arguments: list[str], shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", command(arguments, shell)],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        check=False,
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("arguments", "unbuffered"), BUFFERED, ids=IDS)
def test_a_full_disk_behind_the_output_is_told_in_a_line(arguments: list[str], unbuffered: str) -> None:
    done = run(arguments, "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("arguments", "unbuffered"), BUFFERED, ids=IDS)
def test_a_reader_that_has_read_enough_is_no_error_to_tell(arguments: list[str], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "exportguard", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-", "2> /dev/full"])
def test_a_stream_that_is_closed_stops_nothing(closed: str) -> None:
    done = run(["models", "bert"], closed)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("fill-mask" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_file_does_not_take_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import os, torch\n"
        "def make():\n"
        "    os.write(1, b'from below')\n"  # as a library in C prints
        "    return torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None\n"
    )
    done = run(["export", "-m", f"{tmp_path}/model.py:make", "-o", f"{tmp_path}/out", "-q"], "<&- >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(b"from below" in path.read_bytes() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("letters", ["ascii", "cp437"])
def test_an_encoding_without_a_letter_stops_nothing(letters: str) -> None:
    """The rows of a table end in an ellipsis where the terminal is narrow, and names have the letters they have."""
    done = run(["patches", "list", "packed"], "", PYTHONIOENCODING=letters, COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, "")
    wrong = run(["validate", "-q", "-m", "./mödel-模型"], "", PYTHONIOENCODING=letters)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Error: there is no folder ./m")
    assert wrong.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [(signal.SIGINT, 130, b"\ninterrupted\n"), (signal.SIGTERM, 143, b""), (signal.SIGHUP, 129, b"")],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_program_that_is_told_to_end_leaves_nothing_half_written(
    told: signal.Signals, code: int, said: bytes, tmp_path: Path
) -> None:
    program = tmp_path / "model.py"
    program.write_text(
        "import pathlib, time, torch\n"
        "class Waits(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        f"        pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        "        time.sleep(60)\n"
        "        return x\n"
        "def make(): return Waits().eval(), (torch.randn(2),), None\n"
    )
    (tmp_path / "place").mkdir()
    arguments = ["export", "-m", f"{program}:make", "-o", f"{tmp_path}/place/out", "-q"]
    process = subprocess.Popen(
        [sys.executable, "-m", "exportguard", *arguments],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(told, signal.SIG_DFL),  # a job in the background ignores some
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert any((tmp_path / "place").iterdir()), "the folder is being made"
    process.send_signal(told)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, said)
    assert list((tmp_path / "place").iterdir()) == []
