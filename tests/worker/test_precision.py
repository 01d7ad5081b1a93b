"""What a requested precision sets, and that a step can read it by any of torch's names."""

from __future__ import annotations

import subprocess
import sys

import pytest

_READS = """
import sys
from gputui.worker.contract import Precision
import torch
Precision(sys.argv[1], sys.argv[1], "cuda").apply()
on = sys.argv[1] == "tf32"
assert torch.backends.cuda.matmul.allow_tf32 is on
assert torch.backends.cudnn.allow_tf32 is on
assert torch.get_float32_matmul_precision() == ("high" if on else "highest")
with torch.backends.cudnn.flags():
    pass
assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is on
assert (torch.backends.cudnn.conv.fp32_precision == "tf32") is on
"""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_step_may_read_every_setting_of_tf32(precision: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _READS, precision], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
