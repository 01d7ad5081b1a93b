"""What errors of torch and its libraries mean, in our words."""

from __future__ import annotations

import pytest

from gputui.services.share.vocabulary import message
from gputui.worker.contract import Unsupported
from gputui.worker.failures import MORE_SHM, RemoteError, outcome_of, reason_of


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError(), "oom"),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"), "oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "oom"),
        (type("OutOfMemoryError", (RuntimeError,), {})("no words that say so"), "oom"),
        (Unsupported("no such mode"), "unsupported"),
        (NotImplementedError("Could not run 'aten::x' with arguments from the 'MPS' backend"), "unsupported"),
        (RuntimeError("CUDA error: no kernel image is available for execution"), "unsupported"),
        (type("BackendCompilerFailed", (Exception,), {"__module__": "torch._dynamo.exc"})(), "unsupported"),
        (RuntimeError("first line\nsecond line"), "failed"),
        (AssertionError("Torch not compiled with CUDA enabled"), "failed"),
        (AttributeError("module 'torch' has no attribute 'mps'"), "failed"),
    ],
)
def test_an_error_means_too_little_memory_what_a_box_cannot_do_or_a_failure(
    error: Exception, outcome: str
) -> None:
    assert outcome_of(error) == outcome
    reason = reason_of(error)
    assert reason.startswith((type(error).__name__, "no such mode"))
    assert "\n" not in reason


def test_the_amounts_in_a_message_of_an_allocator_are_kept_and_nothing_else_of_it() -> None:
    error = MemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which"
        " 3.50 GiB is free. Process 7 of hf_SECRET"
    )
    assert reason_of(error) == (
        "MemoryError (tried to allocate 20.00 GiB, 3.50 GiB free, 79.1 GiB in all); its message is in the"
        " worker's log"
    )


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
