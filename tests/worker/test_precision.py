"""What a requested precision sets, and that a step can read it by any of torch's names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gputui.worker.contract import Unsupported
from gputui.worker.steps import resolve

_READS = """
import os
import sys
import torch
from gputui.worker.contract import Precision

backends = torch.backends
of_cpu = backends.mkldnn
places = [backends, backends.cudnn, backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul]
places += [of_cpu, of_cpu.matmul, of_cpu.conv, of_cpu.rnn]
kinds = places[2:5]
for pair in sys.argv[1:]:  # each in a fork of torch as it starts
    child = os.fork()
    if not child:
        break
    assert os.waitpid(child, 0)[1] == 0, pair
else:
    sys.exit()
asked, device = pair.split()
on = asked == "tf32"

def narrow(place):
    try:
        place.fp32_precision = "tf32"
    except RuntimeError:  # not every kind of operation has it on a CPU
        place.fp32_precision = "bf16"

def check(before):
    Precision(asked, asked, device).apply()
    assert backends.cuda.matmul.allow_tf32 is on, before
    assert backends.cudnn.allow_tf32 is on, before
    assert torch.get_float32_matmul_precision() == ("high" if on else "highest"), before
    with backends.cudnn.flags():
        pass
    for place in kinds:
        assert (place.fp32_precision == "tf32") is on, before
    for place in places[-3:] if not on else ():
        assert place.fp32_precision in ("none", "ieee"), before

check("torch as it starts")
for number, place in enumerate(places):
    narrow(place)
    check(number)
    for more in places:
        narrow(place), narrow(more)
        check((number, places.index(more)))
for name in ("highest", "high", "medium"):
    torch.set_float32_matmul_precision(name)
    check(name)
"""


@pytest.mark.parametrize(
    ("has_bf16", "asked", "used"),
    [
        (True, "amp", "amp-bf16"),
        (True, "amp-bf16", "amp-bf16"),
        (True, "amp-fp16", "amp-fp16"),
        (False, "amp", "amp-fp16"),
        (False, "amp-fp16", "amp-fp16"),
    ],
)
def test_a_gpu_computes_in_the_type_that_is_asked_for_and_amp_chooses(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, asked: str, used: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: has_bf16)
    assert (resolve(asked, "cuda").requested, resolve(asked, "cuda").used) == (asked, used)


def test_what_a_device_would_only_imitate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: False)
    with pytest.raises(Unsupported, match="this GPU does not compute in bf16"):
        resolve("amp-bf16", "cuda")
    monkeypatch.setattr("torch.ops.mkldnn._is_mkldnn_fp16_supported", lambda: False)
    with pytest.raises(Unsupported, match="fp16 on a CPU needs AVX512-FP16"):
        resolve("amp-fp16", "cpu")
    monkeypatch.setattr("torch.ops.mkldnn._is_mkldnn_fp16_supported", lambda: True)
    assert resolve("amp-fp16", "cpu").used == "amp-fp16"
    with pytest.raises(Unsupported, match="cannot train in fp16 on an Apple GPU"):
        resolve("amp-fp16", "mps")
    assert resolve("amp", "cpu").used == resolve("amp-bf16", "cpu").used == "amp-bf16"


@pytest.mark.slow
def test_whatever_a_step_set_before_the_precision_is_as_asked_and_can_be_read_by_every_name() -> None:
    words = [sys.executable, "-c", _READS, "fp32 cuda", "fp32 cpu", "tf32 cuda"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
