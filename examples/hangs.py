#!/usr/bin/env python3
"""Training programs that stop making progress, and slow ones that do not. Needs only Python 3.10 or newer.

It trains nothing: the steps are empty. All else is real: the ranks meet at every step over TCP (peers.py), checkpoints are files,
the data loader is a process. So what a hang looks like from outside is what it looks like in a real program.

    HANG=loader HANG_AT=5 python3 examples/hangs.py --steps 50 --checkpoint-dir /tmp/demo

Environment, hangs (one of):

  HANG        deadlock    two threads of the rank wait for each other's lock; the other ranks wait for it in the collective
              loader      the data loader's process never delivers; the rank waits at its queue
              loop        the rank computes for ever
              stopped     the rank's process is stopped (SIGSTOP)
              rank_gone   the rank ends with 0 before the others; those wait for it and do not notice
  HANG_AT     the step at which it happens (default 5)
  HANG_RANK   the rank it happens to (default 0)
  HANG_TIMES  how often in all (default 1), counted over launches in the checkpoint directory

Environment, slow but healthy (one of):

  SLOW        load         loading takes long, without a word
              evaluation   an evaluation takes long, without a word
              save         a checkpoint is written slowly: its file grows
              loader_stall the data loader stalls, and delivers in the end
              tqdm         the only output is a progress bar that overwrites itself
              idle_gpu     steps are long and the processor idles, as where all work is done by an accelerator
              debugger     a debugger stops the rank, looks around, and lets it go on (Linux on x86-64 or arm64)
  SLOW_SECONDS  how long (default 30; idle_gpu: the time of a step)
  SLOW_AT     the step at which it happens (default 5)
  SLOW_RANK   the rank it happens to, or `all` (default all; debugger: 0)
  SLOW_QUIET  1: without the lines that say which phase it is in
"""

import argparse
import ctypes
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

from failing import BadRequest, whole_number
from peers import Peers
from train import Log, State, directory, load, positive, save, seconds

HANGS = ("deadlock", "loader", "loop", "stopped", "rank_gone")
SLOW = ("load", "evaluation", "save", "loader_stall", "tqdm", "idle_gpu", "debugger")
CHUNK = b"0" * 65536  # what a slow save writes at once

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
PR_SET_PDEATHSIG, PR_SET_PTRACER = 1, 0x59616D61


def choice(environment, name, kinds):
    kind = environment.get(name, "").strip().lower()
    if kind and kind not in kinds:
        raise BadRequest(f"{name}: {kind!r} is none of {', '.join(kinds)}")
    return kind or None


class Request:
    """What was asked for in the environment, and how often the hang has happened already."""

    def __init__(self, environment, rank, checkpoints):
        self.hang = choice(environment, "HANG", HANGS)
        self.slow = choice(environment, "SLOW", SLOW)
        if self.hang and self.slow:
            raise BadRequest("HANG and SLOW: one of them at a time")
        self.rank = rank
        self.hang_at = whole_number("HANG_AT", environment.get("HANG_AT", "5"))
        self.hang_rank = whole_number("HANG_RANK", environment.get("HANG_RANK", "0"))
        self.times = whole_number("HANG_TIMES", environment.get("HANG_TIMES", "1"))
        self.slow_at = whole_number("SLOW_AT", environment.get("SLOW_AT", "5"))
        self.seconds = whole_number("SLOW_SECONDS", environment.get("SLOW_SECONDS", "30"))
        slow_rank = environment.get("SLOW_RANK", "0" if self.slow == "debugger" else "all")
        self.is_slow = slow_rank == "all" or whole_number("SLOW_RANK", slow_rank) == rank
        self.quiet = environment.get("SLOW_QUIET") == "1"
        self.counter = checkpoints / f"hangs-of-rank-{self.hang_rank}" if checkpoints else None
        attempt = whole_number("HOLDFAST_ATTEMPT", environment.get("HOLDFAST_ATTEMPT", "1"))
        self.launches_before = max(attempt - 1, 0) + whole_number("HOLDFAST_LAUNCH", environment.get("HOLDFAST_LAUNCH", "0"))

    def happened(self):
        if self.counter is None:
            return self.launches_before
        try:
            return int(self.counter.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def hangs(self, step):
        """The hang of this rank at this step, counted; else none."""
        if self.hang is None or self.rank != self.hang_rank or step != self.hang_at:
            return None
        count = self.happened()
        if count >= self.times:
            return None
        if self.counter is not None:
            self.counter.parent.mkdir(parents=True, exist_ok=True)
            self.counter.write_text(str(count + 1))
        return self.hang

    def slows(self, kind, step=None):
        return self.slow == kind and self.is_slow and step in (None, self.slow_at)


class Loader:
    """A data loader with one process, as PyTorch's with one worker: batches come through a queue."""

    def __init__(self, steps, stall_at=None, stall_seconds=0.0):
        context = multiprocessing.get_context("fork")
        self.batches = context.Queue(maxsize=2)
        self.worker = context.Process(target=produce, args=(self.batches, steps, stall_at, stall_seconds), daemon=True)
        self.worker.start()

    def next(self):
        return self.batches.get()


def produce(batches, steps, stall_at, stall_seconds):
    """The worker: one batch a step; before one of them it stalls (math.inf: for ever). It dies with its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for step in steps:
        if step == stall_at:
            read_from_slow_storage(stall_seconds)
        batches.put(step)


def read_from_slow_storage(how_long):
    if how_long == math.inf:
        reading, writing = os.pipe()  # nobody ever writes
        os.read(reading, 1)
    time.sleep(how_long)


def deadlock():
    """Two threads take two locks in opposite order."""
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with second:
            both.wait()
            first.acquire()

    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        second.acquire()


def compute_for_ever():
    value = 1
    while True:
        value = (value * 6364136223846793005 + 1442695040888963407) % (1 << 64)


def wait_for_ever():
    threading.Event().wait()


def hang(kind):
    sys.stdout.flush()
    if kind == "deadlock":
        deadlock()
    elif kind == "loop":
        compute_for_ever()
    elif kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "rank_gone":
        os._exit(0)


def is_examined(how_long):
    """A child attaches to this process as a debugger does, which stops it, and lets it go after the time."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    program, (ready, go) = os.getpid(), os.pipe()
    child = os.fork()
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.read(ready, 1)
        if libc.ptrace(PTRACE_ATTACH, program, None, None) == 0:
            time.sleep(how_long)
            libc.ptrace(PTRACE_DETACH, program, None, None)
            os._exit(0)
        os._exit(1)
    libc.prctl(PR_SET_PTRACER, child, 0, 0, 0)  # fails where the system does not ask for it
    os.write(go, b"x")
    _, status = os.waitpid(child, 0)
    os.close(ready)
    os.close(go)
    if status != 0:
        print("no debugger could be attached", file=sys.stderr, flush=True)


def write_slowly(directory, step, how_long):
    """A file beside the checkpoints that grows for the given time, then is gone."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:08d}.part"
    end = time.monotonic() + how_long
    with open(path, "wb") as file:
        while time.monotonic() < end:
            file.write(CHUNK)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)
    path.unlink()


class Bar(Log):
    """Says steps by a progress bar only, on standard error, as tqdm does."""

    def say(self, line):
        pass

    def step(self, step, loss, samples):
        part = step * 20 // self.steps
        print(f"\r{step * 100 // self.steps:3d}%|{'#' * part}{' ' * (20 - part)}|", end="", file=sys.stderr, flush=True)


def together(peers, request, state):
    """The collective of a step. As with NCCL, a rank that has left is not noticed: the others wait."""
    try:
        peers.mean([float(state.step)])
    except RuntimeError:
        if request.hang != "rank_gone":
            raise
        wait_for_ever()


def train(options, rank, world_size):
    request = Request(os.environ, rank, options.checkpoint_dir)
    log = Bar(options.steps, False) if request.slow == "tqdm" else Log(options.steps, request.quiet)
    log.phase("communication")
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    peers = Peers(rank, world_size, address, whole_number("MASTER_PORT", os.environ.get("MASTER_PORT", "29500")))

    log.phase("loading")
    if request.slows("load"):
        time.sleep(request.seconds)
    found = load(options.checkpoint_dir, log) if options.checkpoint_dir else None
    state = found[0] if found else State([])
    if found:
        log.checkpoint(state.step, found[1], "loaded")

    ahead = range(state.step + 1, options.steps + 1)
    stall = None
    if request.slows("loader_stall"):
        stall = (request.slow_at, float(request.seconds))
    elif request.hang == "loader" and request.hang_at in ahead and request.hangs(request.hang_at):
        stall = (request.hang_at, math.inf)
    loader = Loader(ahead, *(stall or ()))

    log.phase("training")
    for step in ahead:
        loader.next()
        hang(request.hangs(step) if request.hang != "loader" else None)
        time.sleep(request.seconds if request.slows("idle_gpu") else options.step_seconds)
        if request.slows("debugger", step):
            is_examined(request.seconds)
        state.step = step
        state.samples += world_size
        together(peers, request, state)
        log.step(step, 1.0 / step, state.samples)
        if request.slows("evaluation", step):
            log.phase("evaluation")
            time.sleep(request.seconds)
            log.phase("training")
        if rank == 0 and options.checkpoint_dir and (step % options.save_every == 0 or step == options.steps):
            log.phase("saving")
            log.checkpoint(step, save(state, options.checkpoint_dir), "saved")
            log.phase("training")
        if rank == 0 and options.checkpoint_dir and request.slows("save", step):
            log.phase("saving")
            write_slowly(options.checkpoint_dir, step, request.seconds)
            log.phase("training")
    log.say("done")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog="What goes wrong: see the top of hangs.py.")
    parser.add_argument("--steps", type=positive, default=200, help="the last step (default 200)")
    parser.add_argument("--save-every", type=positive, default=10, help="steps between checkpoints (default 10)")
    parser.add_argument("--step-seconds", type=seconds, default=0.1, help="how long a step takes at least (default 0.1)")
    parser.add_argument(
        "--checkpoint-dir",
        type=directory,
        default=os.environ.get("HOLDFAST_CHECKPOINT_DIR"),
        help="where checkpoints are (default: $HOLDFAST_CHECKPOINT_DIR; without one nothing is saved)",
    )
    options = parser.parse_args(arguments)
    options.checkpoint_dir = Path(options.checkpoint_dir) if options.checkpoint_dir else None
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        rank = whole_number("RANK", os.environ.get("RANK", "0"))
        world_size = whole_number("WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
        train(options, rank, world_size)
    except BadRequest as error:
        sys.exit(f"hangs.py: {error}")


if __name__ == "__main__":
    main()
