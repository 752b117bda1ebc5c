#!/usr/bin/env python3
"""A small training program that can be interrupted anywhere. Needs only Python 3.10 or newer.

It fits a linear model by stochastic gradient descent: data, order and arithmetic depend on the seed and the step alone, so an
interrupted run that resumes ends with exactly the loss of an undisturbed one. What makes it safe to restart is what any
program needs: it saves its whole state, atomically, into a directory that outlives the process, and starts from the newest
checkpoint that is whole. Failures on request: see failing.py.

    python3 examples/train.py --steps 200 --checkpoint-dir /tmp/demo
"""

import argparse
import hashlib
import json
import os
import random
import re
import sys
import time
from pathlib import Path

import holdfast_exit
from failing import BadRequest, Failures, whole_number
from peers import Peers

FEATURES = 8
BATCH = 32  # samples per rank and step
RATE = 0.02
KEEP = 3  # checkpoints; older ones are removed
NAME = re.compile(r"step-(\d{1,12})\.json")


class Log:
    """What the program tells about itself: exactly, or (plain) as a well-known framework would."""

    def __init__(self, steps, plain):
        self.steps = steps
        self.plain = plain

    def say(self, line):
        print(line, flush=True)  # a line that is still in a buffer when the process dies is lost

    def phase(self, name):
        if not self.plain:
            self.say(f"holdfast phase={name}")

    def step(self, step, loss, samples):
        if self.plain:
            self.say(
                f" iteration {step:8d}/{self.steps:8d} | consumed samples: {samples:12d} | learning rate: {RATE:.3E} | "
                f"lm loss: {loss:.6E} | number of skipped iterations:   0 | number of nan iterations:   0 |"
            )
        else:
            self.say(f"holdfast step={step} loss={loss:.6f} samples={samples}")

    def checkpoint(self, step, path, done):
        if not self.plain:
            self.say(f"holdfast checkpoint step={step} path={path} {done}")
        elif done == "saved":
            self.say(f"  successfully saved checkpoint from iteration {step:7d} to {path}")
        else:
            self.say(f"  successfully loaded checkpoint from {path} at iteration {step}")


class State:
    """Everything that a resumed run needs."""

    def __init__(self, weights, step=0, samples=0):
        self.weights = weights
        self.step = step
        self.samples = samples


def digest(fields):
    """Tells a whole file from a damaged one."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def save(state, directory):
    """Writes a checkpoint so that at every moment the file is either absent or whole, and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{state.step:08d}.json"
    fields = vars(state)
    unfinished = path.with_suffix(".tmp")
    with open(unfinished, "w") as file:
        json.dump({"state": fields, "sha256": digest(fields)}, file)
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


def checkpoints(directory):
    """The checkpoints of a directory, newest first."""
    named = [(int(NAME.fullmatch(p.name)[1]), p) for p in directory.glob("step-*.json") if NAME.fullmatch(p.name)]
    return [path for _, path in sorted(named, reverse=True)]


def load(directory, log):
    """The newest whole checkpoint and its path, or None; says which ones were passed over."""
    for path in checkpoints(directory):
        try:
            content = json.loads(path.read_text())
            if digest(content["state"]) != content["sha256"]:
                raise ValueError("its checksum is wrong")
            return State(**content["state"]), path
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.say(f"skipping the damaged checkpoint {path}: {error}")
    return None


def batch(seed, step, rank):
    """The samples of one rank in one step: inputs and the targets of a hidden linear model, with noise."""
    hidden = random.Random(f"{seed} model")
    truth = [hidden.uniform(-2, 2) for _ in range(FEATURES)]
    source = random.Random(f"{seed} {step} {rank}")
    for _ in range(BATCH):
        inputs = [source.gauss(0, 1) for _ in range(FEATURES)]
        yield inputs, sum(t * x for t, x in zip(truth, inputs)) + source.gauss(0, 0.1)


def gradient(weights, samples):
    """Gradient and value of the mean squared error."""
    slope, loss = [0.0] * FEATURES, 0.0
    for inputs, target in samples:
        error = sum(w * x for w, x in zip(weights, inputs)) - target
        loss += error * error / BATCH
        for i, x in enumerate(inputs):
            slope[i] += 2 * error * x / BATCH
    return slope, loss


def train(options, rank, world_size, log):
    failures = Failures(os.environ, rank, options.checkpoint_dir)
    failures.at(0)
    notice = holdfast_exit.listen()

    log.phase("communication")
    peers = Peers(
        rank,
        world_size if options.barrier else 1,
        os.environ.get("MASTER_ADDR", "127.0.0.1"),
        whole_number("MASTER_PORT", os.environ.get("MASTER_PORT", "29500")),
    )

    log.phase("loading")
    time.sleep(whole_number("SLOW_PHASE", os.environ.get("SLOW_PHASE", "0")))
    found = load(options.checkpoint_dir, log) if options.checkpoint_dir else None
    if found:
        state, path = found
        log.checkpoint(state.step, path, "loaded")
    else:
        state = State([0.0] * FEATURES)
        log.say("no checkpoint: starting at step 0")
    if peers.mean([float(state.step)]) != [float(state.step)]:
        raise RuntimeError(f"rank {rank} found step {state.step}, other ranks another one: do all of them see the same checkpoint directory?")

    log.phase("training")
    while state.step < options.steps:
        step = state.step + 1
        failures.at(step)
        time.sleep(options.step_seconds)
        slope, loss = gradient(state.weights, batch(options.seed, step, rank))
        # Only the first process of each replica is asked to save; all have to know, and at the same step.
        *slope, loss, asked = peers.mean(slope + [loss, float(notice.asked())])
        state.weights = [w - RATE * s for w, s in zip(state.weights, slope)]
        state.step = step
        state.samples += BATCH * world_size
        log.step(step, loss, state.samples)
        path = None
        if rank == 0 and options.checkpoint_dir and (asked or step % options.save_every == 0 or step == options.steps):
            log.phase("saving")
            path = save(state, options.checkpoint_dir)
            log.checkpoint(step, path, "saved")
            log.phase("training")
        if asked:
            peers.mean([0.0])  # rank 0 has saved
            if options.checkpoint_dir:
                notice.saved(step, path)
            else:
                notice.failed("there is no checkpoint directory")
    log.say("done")


def directory(text):
    """A path; an empty one is none, not the working directory."""
    return Path(text) if text else None


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def seconds(text):
    number = float(text)
    if not 0 <= number <= 3600:
        raise argparse.ArgumentTypeError("must be between 0 and 3600 seconds")
    return number


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog="Failures on request: see failing.py.")
    parser.add_argument("--steps", type=positive, default=200, help="the last step (default 200)")
    parser.add_argument("--save-every", type=positive, default=10, help="steps between checkpoints (default 10)")
    parser.add_argument("--step-seconds", type=seconds, default=0.1, help="how long a step takes at least (default 0.1)")
    parser.add_argument("--seed", type=int, default=1, help="of data and model (default 1)")
    parser.add_argument(
        "--checkpoint-dir",
        type=directory,
        default=os.environ.get("HOLDFAST_CHECKPOINT_DIR"),
        help="where checkpoints are (default: $HOLDFAST_CHECKPOINT_DIR; without one nothing is saved)",
    )
    parser.add_argument("--plain", action="store_true", help="print lines as a well-known framework does, not Holdfast's own")
    parser.add_argument("--no-barrier", dest="barrier", action="store_false", help="ranks train alone instead of together")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    try:
        rank = whole_number("RANK", os.environ.get("RANK", "0"))
        world_size = whole_number("WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
        train(options, rank, world_size, Log(options.steps, options.plain))
    except BadRequest as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
