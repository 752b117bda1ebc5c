"""Tests of the hanging and the slow programs: each hang hangs where it says, each slow program ends well."""

import os
import re
import signal
import tempfile
import threading
import time
import unittest
from pathlib import Path

from test_train import HERE, LIMIT, TrainTest, free_port


def eventually(what, holds):
    end = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {LIMIT} s")
        time.sleep(0.01)


def state(pid):
    """The kernel's letter for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def tracer(pid):
    return int(re.search(r"TracerPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


class HangTest(TrainTest):
    program = HERE / "hangs.py"

    def group(self, size=2, **extra):
        """Ranks whose output goes to files, so that it can be read while they hang."""
        folder = Path(tempfile.mkdtemp(dir=self.dir.parent))
        group = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE=size, HOLDFAST_CHECKPOINT_DIR=self.dir)
        ranks = []
        for rank in range(size):
            process = self.start(RANK=rank, **group, **extra)
            process.log = folder / str(rank)
            self.drain(process)
            ranks.append(process)
        return ranks

    @staticmethod
    def drain(process):
        def copy():
            with open(process.log, "w", buffering=1) as log:
                for line in process.stdout:
                    log.write(line)

        threading.Thread(target=copy, daemon=True).start()

    @staticmethod
    def steps(process):
        text = process.log.read_text() if process.log.exists() else ""
        return [int(n) for n in re.findall(r"^holdfast step=(\d+)", text, re.M)]

    def hang(self, kind, **extra):
        """Starts two ranks and waits until both have made the last step before the hang."""
        ranks = self.group(HANG=kind, HANG_AT=3, HANG_RANK=1, **extra)
        for rank in ranks:
            eventually(f"{kind}: step 2", lambda rank=rank: self.steps(rank)[-1:] == [2])
        return ranks

    def rest(self, ranks):
        """They stay where they are, for a moment at least."""
        time.sleep(0.5)
        for rank in ranks:
            self.assertIsNone(rank.poll())
            self.assertEqual(self.steps(rank)[-1], 2)
        for rank in ranks:
            rank.kill()


class Hanging(HangTest):
    def test_a_deadlock_stays(self):
        ranks = self.hang("deadlock")
        eventually("both threads sleep", lambda: len(os.listdir(f"/proc/{ranks[1].pid}/task")) >= 2)
        self.rest(ranks)

    def test_a_loader_that_never_delivers(self):
        self.rest(self.hang("loader"))

    def test_an_endless_loop_takes_processor_time(self):
        ranks = self.hang("loop")
        used = lambda: sum(int(n) for n in Path(f"/proc/{ranks[1].pid}/stat").read_text().rpartition(") ")[2].split()[11:13])
        before = used()
        eventually("processor time", lambda: used() > before + 10)
        self.rest(ranks)

    def test_a_stopped_process_is_stopped(self):
        ranks = self.hang("stopped")
        eventually("stopped", lambda: state(ranks[1].pid) == "T")
        self.rest(ranks)

    def test_a_rank_that_is_gone_is_not_noticed(self):
        ranks = self.hang("rank_gone")
        self.assertEqual(ranks[1].wait(LIMIT), 0)
        self.rest(ranks[:1])

    def test_it_hangs_once_and_then_goes_on_from_the_checkpoint(self):
        ranks = self.group(HANG="deadlock", HANG_AT=6, HANG_RANK=0)
        eventually("step 5", lambda: self.steps(ranks[1])[-1:] == [5])
        eventually("the hang", lambda: (self.dir / "hangs-of-rank-0").exists())
        for rank in ranks:
            rank.kill()
            rank.wait(LIMIT)
        for status, out, err in self.run_group(size=2, HANG="deadlock", HANG_AT=6, HANG_RANK=0):
            self.assertEqual(status, 0, err)
            self.assertIn(f"path={self.dir}/step-00000004.json loaded", out)
            self.assertIn("holdfast step=12 ", out)


class Slow(HangTest):
    def run_slow(self, kind, **extra):
        ended = self.run_group(size=2, SLOW=kind, SLOW_SECONDS=1, SLOW_AT=3, **extra)
        for status, _, err in ended:
            self.assertEqual(status, 0, err)
        return ended

    def test_what_is_slow_ends_well(self):
        for kind, phase in (("load", "loading"), ("evaluation", "evaluation"), ("save", "saving"), ("loader_stall", "training")):
            with self.subTest(kind):
                self.dir = self.dir.with_name(kind)
                out = self.run_slow(kind)[0][1]
                self.assertIn(f"holdfast phase={phase}", out)
                self.assertIn("holdfast step=12 ", out)

    def test_quiet_programs_say_no_phase(self):
        out = self.run_slow("evaluation", SLOW_QUIET=1)[0][1]
        self.assertNotIn("phase=", out)
        self.assertIn("iteration       12/", out)

    def test_a_bar_is_all_that_is_printed(self):
        _, out, err = self.run_slow("tqdm")[0]
        self.assertEqual(out, "")
        self.assertEqual(err.count("%|"), 12)
        self.assertTrue(err.endswith("|####################|"), err)

    def test_steps_move_while_the_processor_idles(self):
        begin = time.monotonic()
        ended = self.run_group("--steps=2", size=1, SLOW="idle_gpu", SLOW_SECONDS=1)
        self.assertEqual(ended[0][0], 0, ended[0][2])
        self.assertGreater(time.monotonic() - begin, 2)

    def test_a_debugger_stops_and_lets_go(self):
        ranks = self.group(size=1, SLOW="debugger", SLOW_SECONDS=2, SLOW_AT=3)
        eventually("a debugger", lambda: tracer(ranks[0].pid) != 0)
        self.assertEqual(ranks[0].wait(LIMIT), 0)
        eventually("the last step", lambda: self.steps(ranks[0])[-1:] == [12])

    def test_the_growing_file_is_gone_in_the_end(self):
        ranks = self.group(size=1, SLOW="save", SLOW_SECONDS=1, SLOW_AT=3)
        part = self.dir / "step-00000003.part"
        eventually("a part of a file", lambda: part.exists() and part.stat().st_size > 65536)
        self.assertEqual(ranks[0].wait(LIMIT), 0)
        self.assertFalse(part.exists())


class Requests(HangTest):
    def test_what_cannot_be_understood_is_named(self):
        for extra, want in ((dict(HANG="x"), "HANG: 'x' is none of"), (dict(HANG="loop", SLOW="tqdm"), "one of them at a time")):
            status, _, err = self.run_once(**extra)
            self.assertEqual(status, 1)
            self.assertIn(want, err)


if __name__ == "__main__":
    unittest.main()
