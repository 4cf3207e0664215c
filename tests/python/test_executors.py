"""Where the models of a sweep run: here, or on a cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exportguard.command_line import main
from exportguard.errors import InvalidArgumentError
from exportguard.sweep.executors import executor_named

SWEEP = ["sweep", "-v", "0", "-t", "image-classification", "-k", "vit_msn"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


@pytest.fixture
def dask_cluster(tmp_path: Path) -> Iterator[str]:
    from distributed import LocalCluster

    scratch = tmp_path / "scratch"
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, local_directory=str(scratch)
    ) as cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


@pytest.fixture
def ray_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port = free_port()
    arguments = ["--block", "--disable-usage-stats", "--include-dashboard=false", "--num-cpus=1", "--num-gpus=0"]
    ports = [f"--port={free_port()}", f"--ray-client-server-port={port}"]
    head = subprocess.Popen(
        [str(Path(sys.executable).with_name("ray")), "start", "--head", *arguments, *ports],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    )
    try:
        wait_for(port, head)
        yield f"ray://127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(30)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:  # at once, and the head needs the processor
            time.sleep(0.2)
            continue
        return
    raise ChildProcessError(f"exit code {process.returncode}")


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["dask_cluster", "ray_cluster"])
def test_a_cluster_sweeps_and_the_results_come_back(
    cluster: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = request.getfixturevalue(cluster)
    folder = tmp_path / "results"
    assert main([*SWEEP, "-o", str(folder), "--executor", name]) == 0
    (row,) = json.loads((folder / "results.json").read_text())
    assert (row["model"], row["outcome"]) == ("vit_msn", "ok")
    assert "image-classification--vit_msn.json" in {path.name for path in folder.iterdir()}


WRONG = {
    "an unknown kind": (
        "slurm://a:1",
        "unknown executor 'slurm://a:1'; known are dask://HOST:PORT, local, ray://HOST:PORT",
    ),
    "no address": ("dask", "an executor is written dask://HOST:PORT, got 'dask'"),
    "an address of this machine": ("local://a:1", "an executor is written local, got 'local://a:1'"),
}


@pytest.mark.parametrize(("name", "text"), WRONG.values(), ids=WRONG)
def test_an_executor_that_does_not_exist_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        executor_named(name)
    assert str(caught.value) == text


@pytest.mark.parametrize(("name", "package"), [("dask://a:1", "distributed"), ("ray://a:1", "ray")])
def test_a_package_that_is_missing_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = name.partition(":")[0]
    monkeypatch.delitem(sys.modules, f"exportguard.sweep.executors.{kind}", raising=False)
    for loaded in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "meta_path", [Hidden(package), *sys.meta_path])
    with pytest.raises(
        InvalidArgumentError,
        match=rf"needs the package {package}, which is not installed; pip install exportguard\[{kind}\]",
    ):
        executor_named(name)


class Hidden:
    """Finds nothing of a package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from exportguard.sweep.executors import dask

    monkeypatch.setattr(dask, "_CONNECT_S", 1)
    address = f"127.0.0.1:{free_port()}"
    with (
        pytest.raises(InvalidArgumentError, match=f"no Dask scheduler answers at {address}"),
        executor_named(f"dask://{address}"),
    ):
        pass


def test_here_as_many_as_asked_run_at_once() -> None:
    with executor_named("local", jobs=2) as executor:
        assert list(executor.map(abs, [-1, 2, -3])) == [1, 2, 3]
        assert executor._max_workers == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("problem", "attempts"), [("Initialization failure from server: …", 2), ("ray client connection timeout", 1)]
)
def test_a_head_that_was_too_slow_is_asked_once_more(
    problem: str, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(address: str, **options: object) -> None:
        asked.append(address)
        raise ConnectionError(problem)

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(InvalidArgumentError, match="no Ray head answers at head:10001"):
        executor_named("ray://head:10001", jobs=1).__enter__()
    assert asked == ["ray://head:10001"] * attempts
