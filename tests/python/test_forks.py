"""A process that forks for each command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exportguard.sweep import forks
from exportguard.sweep.forks import Fork, ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def ended(fork: Fork) -> int | None:
    for _ in range(600):
        if fork.poll(0.1) is not None:
            break
    return fork.poll()


def test_a_command_ends_with_its_code_and_its_output_in_the_file(server: ForkServer, tmp_path: Path) -> None:
    assert ended(server.start(["sweep", "--help"], tmp_path / "help")) == 0
    assert ended(server.start(["validate", "-m", "no-such-model"], tmp_path / "error")) == 2
    assert "--timeout" in (tmp_path / "help").read_text()
    assert "unknown model 'no-such-model'" in (tmp_path / "error").read_text()


def test_each_command_has_a_process_of_its_own(server: ForkServer, tmp_path: Path) -> None:
    first = server.start(["--help"], tmp_path / "first")
    ended(first)
    second = server.start(["--help"], tmp_path / "second")
    ended(second)
    assert first.pid != second.pid


def test_a_command_can_be_ended_before_its_end(server: ForkServer, tmp_path: Path) -> None:
    fork = server.start(["validate", "-m", "llama"], tmp_path / "output")
    assert fork.poll() is None
    assert fork.kill() == -9


def test_an_uncaught_error_is_an_end_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(forks.os, "_exit", codes.append)
    monkeypatch.setattr(forks, "_redirect", lambda output: None)
    forks._run(["--help", None], str(tmp_path / "output"))  # type: ignore[list-item]
    assert codes == [70]


def test_a_server_that_dies_is_told(tmp_path: Path) -> None:
    server = ForkServer()
    server._process.kill()
    with pytest.raises((ChildProcessError, BrokenPipeError)):
        server.start(["--help"], tmp_path / "output")
    server.close()
