"""What errors of torch and its libraries mean, in our words."""

from __future__ import annotations

import pytest

from gputui.services.share.vocabulary import message
from gputui.worker.failures import MORE_SHM, RemoteError, outcome_of, reason_of


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's"
            " workers are out of shared memory. Please try to raise your shared memory limit."
        ),
        RuntimeError(
            "unable to allocate shared memory(shm) for file </torch_4711_355_0>: No space left on device (28)"
        ),
        RemoteError(
            "DistBackendError",
            "NCCL error in: ProcessGroupNCCL.cpp:94, unhandled system error, NCCL version 2.29.7\n"
            "ncclSystemError: System call or external library call failed\nLast error:\n"
            "Error while creating shared memory segment /dev/shm/nccl-x7Cj5d (size 9637888), error: No space"
            " left on device (28)",
        ),
    ],
    ids=["a loader worker killed by SIGBUS", "a file of torch in /dev/shm", "NCCL in another process"],
)
def test_too_little_shared_memory_is_named_with_what_doctor_advises(error: Exception) -> None:
    reason = reason_of(error)
    assert outcome_of(error) == "failed"
    assert "(the shared memory is too small, " in reason
    assert f" MiB: {MORE_SHM}); its message is in the worker's log" in reason
    shared = message(reason)
    assert shared is not None
    assert MORE_SHM in shared, "a copy for others keeps what helps"


def test_another_failure_of_nccl_is_none_of_the_shared_memory() -> None:
    error = RuntimeError("NCCL error in: x.cpp:94, unhandled cuda error\nncclUnhandledCudaError: Call failed")
    assert reason_of(error) == "RuntimeError (NCCL failed); its message is in the worker's log"
