"""Tests of the standard-library example: it is what the tour, the browser tests and the demo job run.

    python3 -m unittest discover -s examples
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 60  # seconds that any of these programs may take on a slow machine


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def environment(**extra):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "FAIL_", "MASTER_", "SLOW_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        clean.pop(name, None)
    return {**clean, "PYTHONDONTWRITEBYTECODE": "1", **{k: str(v) for k, v in extra.items()}}


class TrainTest(unittest.TestCase):
    program = HERE / "train.py"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name) / "checkpoints"

    def start(self, *arguments, steps=12, **extra):
        command = [sys.executable, str(self.program), f"--steps={steps}", "--save-every=4", "--step-seconds=0", *arguments]
        process = subprocess.Popen(
            command, env=environment(**extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def run_once(self, *arguments, **extra):
        """Exit status (negative: signal), standard output, standard error."""
        process = self.start(*arguments, HOLDFAST_CHECKPOINT_DIR=self.dir, **extra)
        out, err = process.communicate(timeout=LIMIT)
        return process.returncode, out, err

    def run_group(self, *arguments, size=3, **extra):
        """One launch of `size` ranks; a list of (status, out, err)."""
        group = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE=size, HOLDFAST_CHECKPOINT_DIR=self.dir)
        ranks = [self.start(*arguments, RANK=rank, **group, **extra) for rank in range(size)]
        ended = [rank.communicate(timeout=LIMIT) for rank in ranks]
        return [(rank.returncode, *texts) for rank, texts in zip(ranks, ended)]

    def last_step(self, out):
        return [line for line in out.splitlines() if line.startswith("holdfast step=")][-1]

    def undisturbed(self, **extra):
        return self.last_step(self.run_once("--checkpoint-dir", str(self.dir) + "-undisturbed", **extra)[1])


class Training(TrainTest):
    def test_the_loss_falls_and_every_line_is_there(self):
        status, out, _ = self.run_once(steps=60)
        self.assertEqual(status, 0)
        losses = [float(line.split("loss=")[1].split()[0]) for line in out.splitlines() if line.startswith("holdfast step=")]
        self.assertEqual(len(losses), 60)
        self.assertLess(losses[-1], losses[0] / 5)
        self.assertIn(f"holdfast checkpoint step=4 path={self.dir}/step-00000004.json saved", out)
        for phase in ("communication", "loading", "training", "saving"):
            self.assertIn(f"holdfast phase={phase}\n", out)

    def test_an_interrupted_run_ends_like_an_undisturbed_one(self):
        self.assertEqual(self.run_once(FAIL_AT=7)[0], 1)
        status, out, _ = self.run_once(FAIL_AT=7)
        self.assertEqual(status, 0)
        self.assertIn("holdfast checkpoint step=4", out)
        self.assertNotIn("holdfast step=4 ", out)
        self.assertEqual(self.last_step(out), self.undisturbed())

    def test_a_finished_run_makes_no_further_step(self):
        self.run_once()
        status, out, _ = self.run_once()
        self.assertEqual((status, "holdfast step=" in out), (0, False))

    def test_few_checkpoints_are_kept_and_no_unfinished_file(self):
        self.run_once(steps=40)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), [f"step-000000{n}.json" for n in (32, 36, 40)])

    def test_plain_lines_are_those_of_a_framework(self):
        _, out, _ = self.run_once("--plain")
        self.assertNotIn("holdfast", out.replace(str(self.dir), ""))
        self.assertRegex(out, r" iteration +12/ +12 \| consumed samples: +384 \|.* lm loss: \d\.\d{6}E[+-]\d\d \|")
        self.assertRegex(out, r"successfully saved checkpoint from iteration +8 to ")
        _, out, _ = self.run_once("--plain")
        self.assertRegex(out, r"successfully loaded checkpoint from .* at iteration 12")

    def test_without_a_directory_nothing_is_saved(self):
        process = self.start()
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, "checkpoint step" in out), (0, False))

    def test_a_read_only_or_impossible_directory_is_an_error(self):
        self.dir.write_text("a file")
        status, _, err = self.run_once()
        self.assertEqual(status, 1)
        self.assertIn(str(self.dir), err)


class DamagedCheckpoints(TrainTest):
    def damage(self, text):
        self.run_once(FAIL_AT=10)
        (self.dir / "step-00000008.json").write_text(text)
        status, out, _ = self.run_once()
        self.assertEqual(status, 0)
        self.assertIn(f"skipping the damaged checkpoint {self.dir}/step-00000008.json", out)
        self.assertIn(f"holdfast checkpoint step=4 path={self.dir}/step-00000004.json loaded", out)
        self.assertEqual(self.last_step(out), self.undisturbed())

    def test_cut_short(self):
        self.damage('{"state": {"weights": [0.')

    def test_empty(self):
        self.damage("")

    def test_another_content(self):
        self.damage("[]")

    def test_changed_numbers(self):
        state = {"weights": [9.0] * 8, "step": 8, "samples": 1}
        self.damage(json.dumps({"state": state, "sha256": "0" * 64}))

    def test_unfinished_and_foreign_files_are_not_looked_at(self):
        self.dir.mkdir()
        for name in ("step-00000099.tmp", "step-x.json", "notes.txt"):
            (self.dir / name).write_text("x")
        status, out, _ = self.run_once()
        self.assertEqual((status, "skipping" in out), (0, False))


class FailureKinds(TrainTest):
    def fails(self, kind, status, *words):
        got, out, err = self.run_once(FAIL_AT=6, FAIL_KIND=kind)
        self.assertEqual(got, status, err)
        self.assertTrue(self.last_step(out).startswith("holdfast step=5 "))
        for word in words:
            self.assertIn(word, err)
        return err

    def test_hw_node(self):
        self.fails("HW_NODE", -signal.SIGABRT, "NVRM: Xid (PCI:0000:3b:00): 79", "fallen off the bus")

    def test_net_fabric(self):
        self.fails("net_fabric", 1, "NCCL WARN NET/IB : Got completion from peer", "torch.distributed.DistBackendError: NCCL error")

    def test_oom_host(self):
        self.fails("oom_host", -signal.SIGKILL, "Memory cgroup out of memory: Killed process")

    def test_oom_gpu(self):
        self.fails("oom_gpu", 1, "Traceback (most recent call last)", "torch.OutOfMemoryError: CUDA out of memory. Tried")

    def test_comm_hang(self):
        self.fails("comm_hang", -signal.SIGABRT, "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6,")

    def test_app_error(self):
        self.fails("app_error", 1, "Traceback (most recent call last)", "ValueError: batch 6: expected 8 features")

    def test_app_error_is_what_happens_unless_asked_otherwise(self):
        self.assertIn("ValueError", self.run_once(FAIL_AT=6)[2])

    def test_env_error(self):
        self.fails("env_error", 1, "ModuleNotFoundError: No module named 'transformer_engine'")

    def test_unknown(self):
        self.assertEqual(self.fails("unknown", 113), "")

    def test_kill(self):
        self.assertEqual(self.fails("kill", -signal.SIGKILL), "")

    def test_hang_stays_alive_and_ends_by_sigterm(self):
        process = self.start(HOLDFAST_CHECKPOINT_DIR=self.dir, FAIL_AT=6, FAIL_KIND="hang")
        while not process.stdout.readline().startswith("holdfast step=5 "):
            self.assertIsNone(process.poll())
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.terminate()
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, out), (-signal.SIGTERM, ""))

    def test_ignore_term_trains_on(self):
        process = self.start("--step-seconds=0.01", steps=100000, FAIL_AT=3, FAIL_KIND="ignore_term")
        wanted = ["holdfast step=3 ", "holdfast step=30 "]
        while wanted:
            line = process.stdout.readline()
            self.assertTrue(line, "the program ended")
            if line.startswith(wanted[0]):
                wanted.pop(0)
                process.terminate()
        process.kill()

    def test_at_step_0_nothing_was_loaded_yet(self):
        status, out, err = self.run_once(FAIL_AT=0, FAIL_KIND="env_error")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("ModuleNotFoundError", err)

    def test_requests_that_make_no_sense_are_refused(self):
        for extra, word in (
            ({"FAIL_AT": "soon"}, "FAIL_AT"),
            ({"FAIL_AT": "3", "FAIL_KIND": "boredom"}, "hw_node, net_fabric"),
            ({"FAIL_KIND": "kill"}, "FAIL_AT"),
            ({"FAIL_AT": "3", "FAIL_TIMES": "-1"}, "FAIL_TIMES"),
            ({"SLOW_PHASE": "long"}, "SLOW_PHASE"),
        ):
            with self.subTest(extra):
                status, _, err = self.run_once(**extra)
                self.assertEqual((status, "Traceback" in err, word in err), (1, False, True), err)


class HowOften(TrainTest):
    def statuses(self, runs, **extra):
        return [self.run_once(**extra)[0] for _ in range(runs)]

    def test_once_unless_asked_otherwise(self):
        self.assertEqual(self.statuses(2, FAIL_AT=6), [1, 0])

    def test_several_times_at_the_same_step(self):
        self.assertEqual(self.statuses(4, FAIL_AT=6, FAIL_TIMES=3), [1, 1, 1, 0])

    def test_a_list_fails_at_one_step_after_the_other(self):
        self.assertEqual(self.run_once(FAIL_AT="6,10", FAIL_KIND="unknown,env_error")[0], 113)
        status, out, err = self.run_once(FAIL_AT="6,10", FAIL_KIND="unknown,env_error")
        self.assertEqual(status, 1)
        self.assertTrue(self.last_step(out).startswith("holdfast step=9 "))
        self.assertIn("ModuleNotFoundError", err)
        self.assertEqual(self.run_once(FAIL_AT="6,10")[0], 0)

    def test_never(self):
        self.assertEqual(self.statuses(1, FAIL_AT=6, FAIL_TIMES=0), [0])

    def test_an_empty_directory_is_none(self):
        process = self.start("--checkpoint-dir=", HOLDFAST_CHECKPOINT_DIR=self.dir)
        self.assertNotIn("holdfast checkpoint", process.communicate(timeout=LIMIT)[0])

    def test_without_a_directory_launches_and_attempts_count(self):
        for attempt, launch, status in ((1, 0, 1), (1, 1, 1), (2, 0, 1), (2, 1, 0), (3, 0, 0)):
            process = self.start(FAIL_AT=6, FAIL_TIMES=2, HOLDFAST_ATTEMPT=attempt, HOLDFAST_LAUNCH=launch)
            process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, status, (attempt, launch))


class ManyRanks(TrainTest):
    def test_all_ranks_train_together(self):
        ended = self.run_group()
        self.assertEqual([status for status, _, _ in ended], [0, 0, 0], ended)
        self.assertEqual(len({self.last_step(out) for _, out, _ in ended}), 1)
        self.assertIn("samples=1152", ended[0][1])
        self.assertEqual([" saved" in out for _, out, _ in ended], [True, False, False])

    def test_a_dead_rank_takes_the_others_with_it_and_all_resume(self):
        for kind, status in (("app_error", 1), ("kill", -signal.SIGKILL)):
            with self.subTest(kind):
                self.dir = self.dir.with_name(kind)
                ended = self.run_group(FAIL_AT=7, FAIL_RANK=1, FAIL_KIND=kind)
                self.assertEqual([e[0] for e in ended], [1, status, 1])
                for other in (0, 2):
                    self.assertRegex(ended[other][2], r"RuntimeError: \[.*pair.cc:534\] Connection (closed|reset) by peer|Broken pipe by peer")
                    self.assertNotIn("features", ended[other][2])
                ended = self.run_group(FAIL_AT=7, FAIL_RANK=1, FAIL_KIND=kind)
                self.assertEqual([e[0] for e in ended], [0, 0, 0], ended)
                self.assertEqual(["step=4" in out and "loaded" in out for _, out, _ in ended], [True] * 3)

    def test_without_the_barrier_the_others_notice_nothing(self):
        # Without a directory either: a rank that is started late would find that of one which has finished.
        ended = self.run_group("--no-barrier", "--checkpoint-dir=", FAIL_AT=7, FAIL_RANK=1)
        self.assertEqual([e[0] for e in ended], [0, 1, 0])

    def test_ranks_that_see_different_checkpoints_say_so(self):
        self.run_once(FAIL_AT=7)
        port = free_port()
        group = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=2)
        ranks = [
            self.start(RANK=0, HOLDFAST_CHECKPOINT_DIR=self.dir, **group),
            self.start(RANK=1, HOLDFAST_CHECKPOINT_DIR=str(self.dir) + "-elsewhere", **group),
        ]
        ended = [rank.communicate(timeout=LIMIT)[1] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [1, 1])
        self.assertIn("same checkpoint directory", ended[0])


if __name__ == "__main__":
    unittest.main()
