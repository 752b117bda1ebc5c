#!/usr/bin/env python3
"""Distributed data-parallel training with PyTorch over gloo: real collectives, no accelerator needed.

Every step's data depends on the seed, the step and the rank alone, and a checkpoint holds everything else (model, optimizer,
step, random state), so a run that was killed and resumed ends with the loss of an undisturbed one. Works with PyTorch 1.13
and newer. Failures on request: see failing.py; here the default is to die of SIGKILL.

    torchrun --nproc-per-node 2 examples/ddp.py --steps 60 --checkpoint-dir /tmp/demo
"""

import argparse
import os
import pickle
import re
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast_exit
from failing import BadRequest, Failures, whole_number

FEATURES = 16
BATCH = 32  # samples per rank and step
KEEP = 3  # checkpoints; older ones are removed
NAME = re.compile(r"step-(\d{1,12})\.pt")
DAMAGED = (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError)


def say(line):
    print(line, flush=True)  # a line that is still in a buffer when the process dies is lost


def build(seed):
    """Model and optimizer as they are before step 1, the same on every rank. Dropout makes the random state matter."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def batch(seed, step, rank):
    """The samples of one rank in one step: inputs and a smooth function of them."""
    source = torch.Generator().manual_seed((seed * 1_000_003 + step) * 4_099 + rank)
    inputs = torch.randn(BATCH, FEATURES, generator=source)
    return inputs, torch.sin(inputs[:, :1]) + 0.5 * inputs[:, 1:2]


def checkpoints(directory):
    """The checkpoints of a directory, newest first."""
    named = [(int(NAME.fullmatch(p.name)[1]), p) for p in directory.glob("step-*.pt") if NAME.fullmatch(p.name)]
    return [path for _, path in sorted(named, reverse=True)]


def save(directory, step, model, optimizer):
    """Writes a checkpoint so that at every moment the file is either absent or whole, and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:08d}.pt"
    unfinished = path.with_suffix(".tmp")
    with open(unfinished, "wb") as file:
        # Whole numbers and tensors only: PyTorch 1.13 reads no floats with weights_only. The rates are the program's.
        moments = optimizer.state_dict()["state"]
        torch.save({"step": step, "model": model.state_dict(), "optimizer": moments, "random": torch.get_rng_state()}, file)
        file.flush()
        os.fsync(file.fileno())  # the bytes before the name
    os.replace(unfinished, path)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)  # and the name before the old ones go
    finally:
        os.close(handle)
    for old in checkpoints(directory)[KEEP:]:
        old.unlink()
    return path


def resume(directory, model, optimizer):
    """Restores the newest whole checkpoint and returns its step; 0 where there is none."""
    for path in checkpoints(directory):
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)  # never runs code from the file
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict({**optimizer.state_dict(), "state": saved["optimizer"]})
            torch.set_rng_state(saved["random"])
        except DAMAGED as error:
            say(f"skipping the damaged checkpoint {path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            continue
        say(f"holdfast checkpoint step={saved['step']} path={path} loaded")
        return saved["step"]
    say("no checkpoint: starting at step 0")
    return 0


def check_same_step(step):
    """Ranks that start at different steps would train on different states without a word."""
    lowest, highest = torch.tensor([step]), torch.tensor([step])
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    if lowest.item() != highest.item():
        raise RuntimeError(
            f"ranks start at steps {lowest.item()} to {highest.item()}: do all of them see the same checkpoint directory?"
        )


def train(options, failures, rank, world_size):
    notice = holdfast_exit.listen()
    say("holdfast phase=loading")
    model, optimizer = build(options.seed)
    step = resume(options.checkpoint_dir, model, optimizer) if options.checkpoint_dir else 0
    check_same_step(step)
    parallel = DistributedDataParallel(model)

    say("holdfast phase=training")
    while step < options.steps:
        step += 1
        failures.at(step)
        time.sleep(options.step_seconds)
        inputs, targets = batch(options.seed, step, rank)
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # averages the gradients of all ranks
        optimizer.step()
        # Only the first process of each replica is asked to save; all have to know, and at the same step.
        sums = torch.stack([loss.detach(), torch.tensor(float(notice.asked()))])
        dist.all_reduce(sums)
        asked = sums[1].item() > 0
        say(f"holdfast step={step} loss={sums[0].item() / world_size:.9f} samples={step * BATCH * world_size}")
        path = None
        if rank == 0 and options.checkpoint_dir and (asked or step % options.save_every == 0 or step == options.steps):
            say("holdfast phase=saving")
            path = save(options.checkpoint_dir, step, model, optimizer)
            say(f"holdfast checkpoint step={step} path={path} saved")
            say("holdfast phase=training")
        if asked:
            dist.barrier()  # rank 0 has saved
            if options.checkpoint_dir:
                notice.saved(step, path)
            else:
                notice.failed("there is no checkpoint directory")


def directory(text):
    """A path; an empty one is none, not the working directory."""
    return Path(text) if text else None


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog="Failures on request: see failing.py.")
    parser.add_argument("--steps", type=int, default=60, help="the last step (default 60)")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints (default 10)")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="how long a step takes at least (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="of data and model (default 1)")
    parser.add_argument("--timeout-seconds", type=int, default=1800, help="limit of every collective (default 1800)")
    parser.add_argument(
        "--checkpoint-dir",
        type=directory,
        default=os.environ.get("HOLDFAST_CHECKPOINT_DIR"),
        help="where checkpoints are (default: $HOLDFAST_CHECKPOINT_DIR; without one nothing is saved)",
    )
    options = parser.parse_args(arguments)
    if min(options.steps, options.save_every, options.timeout_seconds) < 1 or options.step_seconds < 0:
        parser.error("--steps, --save-every and --timeout-seconds must be 1 or more, --step-seconds 0 or more")
    return options


def set_defaults():
    """One process by hand needs no environment; on one machine gloo needs no host name that resolves."""
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost") and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def main():
    options = parse(sys.argv[1:])
    set_defaults()
    torch.set_num_threads(1)  # several ranks share the machine
    try:
        rank = whole_number("RANK", os.environ["RANK"])
        failures = Failures(os.environ, rank, options.checkpoint_dir, default_kind="kill")
    except BadRequest as error:
        sys.exit(f"ddp.py: {error}")
    failures.at(0)
    say("holdfast phase=communication")
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout_seconds))
    train(options, failures, rank, dist.get_world_size())
    dist.destroy_process_group()
    say("done")


if __name__ == "__main__":
    main()
