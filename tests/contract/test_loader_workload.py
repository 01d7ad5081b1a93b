"""The data pipeline: data survives packing, also across processes; workers end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from builders import make_case, make_plan
from supervised import Supervised, ends_by_itself

from gputui.model.journal import Block, CaseEnd, Figure
from gputui.recording.probing import copy_worker
from gputui.worker.contract import Parameter, Request, Step
from gputui.worker.steps import resolve
from gputui.worker.workloads import loader
from gputui.worker.workloads.loader import Pictures, loader_of, make_picture, pack, unpack

TINY: dict[str, Parameter] = {
    "model": "resnet-basic-1-1-1-1",
    "image": 32,
    "classes": 10,
    "batch": 4,
    "pictures": 4,
    "height": 32,
    "width": 48,
}
ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
from gputui_worker.workloads.loader import Pictures, loader_of
if __name__ == "__main__":
    batches = iter(loader_of(Pictures(2, 16, 16, 8, 1), 2, 2, multiprocessing_context=sys.argv[2]))
    print(*(int(next(batches).sum()) for _ in range(3)))
"""


def built(workers: int) -> Step:
    return loader.build(Request({**TINY, "workers": workers}, "cpu", resolve("fp32", "cpu"), 1, seed=1))


def test_a_picture_comes_back_as_it_was_but_for_rounding() -> None:
    picture = make_picture(64, 96, torch.Generator().manual_seed(1))
    packed = pack(picture)
    back = unpack(packed, 64, 96)
    assert back.shape == picture.shape
    assert float((back.float() - picture.float()).abs().mean()) < 8
    assert 0.05 < len(packed) / picture.numel() < 0.5


def test_a_flat_picture_comes_back_exactly() -> None:
    flat = torch.full((3, 16, 24), 128, dtype=torch.uint8)
    assert torch.equal(unpack(pack(flat), 16, 24), flat)


def test_items_are_crops_of_their_picture_and_differ_from_turn_to_turn() -> None:
    pictures = Pictures(2, 32, 48, 16, seed=3)
    first, again = pictures[1], pictures[3]
    assert first.shape == (3, 16, 16)
    assert first.dtype == torch.uint8
    assert torch.equal(first, pictures[1])
    assert not torch.equal(first, again)


def test_workers_bring_the_same_batches_in_the_same_order_as_none() -> None:
    pictures = Pictures(4, 32, 48, 16, seed=3)
    alone, helped = (iter(loader_of(pictures, 4, workers)) for workers in (0, 2))
    for _ in range(4):
        assert torch.equal(next(alone), next(helped))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_start_from_a_deployed_package_in_either_way(tmp_path: Path, method: str) -> None:
    copy_worker(tmp_path / "code")
    script = tmp_path / "script.py"
    script.write_text(ELSEWHERE)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "code"), method],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    here = iter(loader_of(Pictures(2, 16, 16, 8, 1), 2, 0))
    assert [int(number) for number in done.stdout.split()] == [int(next(here).sum()) for _ in range(3)]


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_what_is_trained() -> None:
    losses = []
    for workers in (0, 2):
        step = built(workers)
        assert step.loss is not None
        for _ in range(3):
            step.run()
        losses.append(step.loss())
        assert step.close is not None
        step.close()
    assert losses[0] == losses[1]


@pytest.mark.parametrize(("cached", "loaded", "share"), [(1.0, 4.0, 0.75), (1.0, 1.0, 0.0), (1.1, 1.0, 0.0)])
def test_waiting_is_what_a_step_takes_longer_than_on_cached_data(
    cached: float, loaded: float, share: float
) -> None:
    assert loader.waiting_share(cached, loaded) == share


@pytest.mark.slow
def test_figures_end_the_workers_and_steps_without_a_loader_go_on() -> None:
    step = built(1)
    assert step.settled is not None
    assert step.figures is not None
    step.run()
    step.settled()
    step.run()
    workers = psutil.Process().children()
    found = step.figures([1e9, 1e9])
    assert psutil.wait_procs(workers, timeout=300)[1] == []
    assert found["cached_step_s"].value is not None
    assert found["cached_step_s"].value > 0
    assert found["blocked_share"].observations == 1
    assert 0 <= (found["waiting_share"].value or 0) < 1


@pytest.mark.slow
def test_a_run_with_two_workers_has_figures_and_one_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    case = make_case("loader", "mini-w2", threads="all")
    run = Supervised(tmp_path / "well", make_plan([0], cases=(case,)))
    run.process.wait(120)
    assert [(end.outcome, end.reason) for end in run.lines(CaseEnd)] == [("ok", "")]
    assert {figure.key for figure in run.lines(Figure)} == {"waiting_share", "cached_step_s", "blocked_share"}

    killed = Supervised(tmp_path / "killed", make_plan([0], cases=(case,), most_blocks=60))
    worker = killed.worker_pid()
    killed.wait_for(Block)
    workers = psutil.Process(worker).children(recursive=True)
    assert {os.getpgid(child.pid) for child in workers} == {worker}
    assert len(workers) >= 2
    assert ends_by_itself(worker, lambda: os.kill(worker, signal.SIGKILL))
    killed.process.wait(120)
    assert psutil.wait_procs(workers, timeout=300)[1] == []
