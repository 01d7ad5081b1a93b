"""A step of a user that fails in every way, each time with a token in its message."""

from __future__ import annotations

TOKEN = "hf_SECRETxQ7dkW"
LOG = "its message is in the worker's log"
NO_OPERATOR = "torch has no such operator for this device"

STEP = """
from gputui_worker.contract import Figure, Size, Step, Unsupported, Value, Workload

def build(request):
    import hashlib
    import os
    how = request.parameters["how"]
    message = "TOKEN-" + how
    if how == "raises":
        raise RuntimeError("401 for " + message)
    if how == "own-error":
        class LoginError(Exception): pass
        raise LoginError(message + "\\n" + message)
    if how == "error-from-error":
        try: 1 / 0
        except Exception as e: raise OSError(message + " /" + message) from e
    if how == "unsupported":
        raise Unsupported(message)
    if how == "not-implemented":
        raise NotImplementedError("Could not run 'aten::" + message + "'")
    if how == "dies":
        print("bye " + message, flush=True); os._exit(3)
    def run():
        hashlib.sha256(bytes(2**18)).digest()
        if how == "step-raises":
            raise ValueError(message)
        if how == "memory":
            raise RuntimeError(message + ": out of memory. Tried to allocate 2.50 GiB " + message)
    if how == "loss":
        return Step(run, loss=lambda: message)
    if how == "fault":
        return Step(run, fault=lambda: "wrong for " + message)
    if how == "figure":
        return Step(run, figures=lambda ns: {"p99_s": Value(None, 0, "no " + message)})
    return Step(run)

WORKLOAD = Workload(
    name="hashing",
    version=1,
    title="hashing",
    question="How fast?",
    workload_class="host",
    unit="B",
    sizes={how: Size({"how": how}, 2.0**18, None, 2**18, 2**18) for how in (HOW)},
    precisions=("fp32",),
    device_classes=("cpu",),
    needs_torch=False,
    build=build,
    figures=(Figure("p99_s", "p99 latency", "s", "less", "median"),),
)
"""
FAILURES = {
    "raises": f"my_step.py line 10: RuntimeError; {LOG}",
    "own-error": f"my_step.py line 13: LoginError; {LOG}",
    "error-from-error": f"my_step.py line 16: OSError; {LOG}",
    "unsupported": f"my_step.py line 18: Unsupported; {LOG}",
    "not-implemented": f"my_step.py line 20: NotImplementedError ({NO_OPERATOR}); {LOG}",
    "step-raises": f"my_step.py line 26: ValueError; {LOG}",
    "memory": f"my_step.py line 28: RuntimeError (tried to allocate 2.50 GiB); {LOG}",
    "loss": f"my_step.py: ValueError; {LOG}",
    "fault": "the step found its work wrong: see the worker's log",
    "dies": "the worker left early with status 3",
    "figure": "",
}
