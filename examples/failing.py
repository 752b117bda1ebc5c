"""Failures on request, in the words that real programs print. Used by the examples; a program of yours needs none of it.

Environment:

  FAIL_AT     the step at which to fail; 0 fails before anything is loaded. A list (`40,90`) fails first at 40, then at 90.
  FAIL_RANK   the rank that fails (default 0).
  FAIL_KIND   how (app_error unless the program says otherwise), or a list beside FAIL_AT:
                hw_node net_fabric oom_host oom_gpu comm_hang app_error env_error unknown   one of the failure types
                kill          dies of SIGKILL without a word
                hang          stops making steps and stays alive
                ignore_term   trains on and ignores SIGTERM from then on
  FAIL_TIMES  how often in all (default: as many as FAIL_AT has steps). Counted over launches and attempts in a file in the
              checkpoint directory; without one, every earlier attempt and launch is taken for one failure.
"""

import os
import resource
import signal
import sys
import time
from pathlib import Path

FAILURE_TYPES = ("hw_node", "net_fabric", "oom_host", "oom_gpu", "comm_hang", "app_error", "env_error", "unknown")
KINDS = FAILURE_TYPES + ("kill", "hang", "ignore_term")


class BadRequest(Exception):
    """A variable that cannot be understood; the text names it and what it may hold."""


def whole_number(name, text):
    """`text` as an integer of 0 or more, else BadRequest about the variable `name`."""
    if not text.strip().isdigit():
        raise BadRequest(f"{name}: a whole number of 0 or more is expected, not {text!r}")
    return int(text)


class Failures:
    """What was asked for in the environment, and how often it has happened already."""

    def __init__(self, environment, rank, directory, default_kind="app_error"):
        """`directory` is the checkpoint directory or None."""
        self.steps = [whole_number("FAIL_AT", s) for s in environment.get("FAIL_AT", "").split(",") if s.strip()]
        self.kinds = [k.strip().lower() for k in environment.get("FAIL_KIND", default_kind).split(",")]
        for kind in self.kinds:
            if kind not in KINDS:
                raise BadRequest(f"FAIL_KIND: {kind!r} is none of {', '.join(KINDS)}")
        if "FAIL_KIND" in environment and not self.steps:
            raise BadRequest("FAIL_KIND needs FAIL_AT, the step at which to fail")
        self.times = whole_number("FAIL_TIMES", environment.get("FAIL_TIMES", str(len(self.steps))))
        self.mine = whole_number("FAIL_RANK", environment.get("FAIL_RANK", "0")) == rank
        self.rank = rank
        self.counter = Path(directory) / f"failures-of-rank-{rank}" if directory else None
        attempt = whole_number("HOLDFAST_ATTEMPT", environment.get("HOLDFAST_ATTEMPT", "1"))
        launch = whole_number("HOLDFAST_LAUNCH", environment.get("HOLDFAST_LAUNCH", "0"))
        self.launches_before = max(attempt - 1, 0) + launch

    def happened(self):
        """How many failures there were."""
        if self.counter is None:
            return self.launches_before
        try:
            return int(self.counter.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def at(self, step):
        """Fails if that was asked for at this step and has not happened often enough; else returns."""
        if not self.steps or not self.mine:
            return
        count = self.happened()
        if count >= self.times or self.steps[min(count, len(self.steps) - 1)] != step:
            return
        if self.counter is not None:
            self.counter.parent.mkdir(parents=True, exist_ok=True)
            with open(self.counter, "w") as file:
                file.write(str(count + 1))
                file.flush()
                os.fsync(file.fileno())
        fail(self.kinds[min(count, len(self.kinds) - 1)], self.rank, step)


def fail(kind, rank, step):
    """Fails in the given way: raises, ends the process, or (hang, ignore_term) as described above."""
    sys.stdout.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort on request needs no core file
    globals()[f"fail_{kind}"](rank, step)


def complain(*lines):
    """Prints to standard error at once: what follows may be the end of the process."""
    for line in lines:
        print(line, file=sys.stderr)
    sys.stderr.flush()


def torch_error(module, name, text):
    """An exception that a traceback shows under PyTorch's name."""
    return type(name, (RuntimeError,), {"__module__": module})(text)


def fail_hw_node(rank, step):
    uptime = time.clock_gettime(time.CLOCK_MONOTONIC)
    complain(
        f"[{uptime:12.6f}] NVRM: GPU at PCI:0000:3b:00: GPU-6f0c2b1e-93aa-4d53-8f0e-1c7d52ab9e44",
        f"[{uptime:12.6f}] NVRM: Xid (PCI:0000:3b:00): 79, pid={os.getpid()}, name=python3, GPU has fallen off the bus.",
        f"[{uptime:12.6f}] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "terminate called after throwing an instance of 'c10::Error'",
        "  what():  CUDA error: unspecified launch failure",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        "Fatal Python error: Aborted",
    )
    os.abort()


def fail_net_fabric(rank, step):
    host = os.uname().nodename
    complain(
        f"{host}:{os.getpid()}:{os.getpid() + 7} [{rank}] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
        "10.20.0.14<47316> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 hca mlx5_2",
        f"{host}:{os.getpid()}:{os.getpid() + 7} [{rank}] NCCL INFO transport/net.cc:1298 -> 6",
    )
    raise torch_error(
        "torch.distributed",
        "DistBackendError",
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2006, remote process exited or there was a "
        "network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely.",
    )


def fail_oom_host(rank, step):
    uptime = time.clock_gettime(time.CLOCK_MONOTONIC)
    complain(
        f"[{uptime:12.6f}] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"[{uptime:12.6f}] Memory cgroup out of memory: Killed process {os.getpid()} (python3) total-vm:68157440kB, "
        "anon-rss:66900992kB, file-rss:12288kB, shmem-rss:0kB, UID:0 pgtables:131584kB oom_score_adj:0",
    )
    os.kill(os.getpid(), signal.SIGKILL)


def fail_oom_gpu(rank, step):
    raise torch_error(
        "torch",
        "OutOfMemoryError",
        f"CUDA out of memory. Tried to allocate 2.50 GiB. GPU {rank} has a total capacity of 79.11 GiB of which 1.02 GiB is free. "
        f"Process {os.getpid()} has 78.08 GiB memory in use. Of the allocated memory 75.93 GiB is allocated by PyTorch, and "
        "1.31 GiB is reserved by PyTorch but unallocated.",
    )


def fail_comm_hang(rank, step):
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime())
    place = f"[rank{rank}]:[E{stamp}.482910377 ProcessGroupNCCL.cpp"
    complain(
        f"{place}:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={step}, OpType=ALLREDUCE, "
        "NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.",
        f"{place}:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog at work sequence id: {step} PG status: "
        f"last enqueued work: {step}, last completed work: {max(step - 1, 0)}",
        f"{place}:684] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "Fatal Python error: Aborted",
    )
    os.abort()


def fail_app_error(rank, step):
    expected, got = 8, 7
    raise ValueError(f"batch {step}: expected {expected} features in every sample, got {got}")


def fail_env_error(rank, step):
    raise ModuleNotFoundError("No module named 'transformer_engine'", name="transformer_engine")


def fail_unknown(rank, step):
    os._exit(113)


def fail_kill(rank, step):
    os.kill(os.getpid(), signal.SIGKILL)


def fail_hang(rank, step):
    while True:  # on purpose without an end: somebody else has to notice
        time.sleep(3600)


def fail_ignore_term(rank, step):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
