"""Tests of the PyTorch example with two real processes. Needs a Python with PyTorch (scripts/setup test provides one)."""

import importlib.util
import signal
import unittest

from test_train import HERE, LIMIT, TrainTest, free_port


@unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no PyTorch")
class DistributedTest(TrainTest):
    program = HERE / "ddp.py"

    def test_a_killed_run_resumes_and_ends_with_the_same_loss(self):
        ended = self.run_group(size=2, FAIL_AT=7, FAIL_RANK=1)
        self.assertEqual([e[0] for e in ended], [1, -signal.SIGKILL], ended)
        self.assertRegex(ended[0][2], r"RuntimeError: .*gloo.*Connection (closed|reset) by peer")

        ended = self.run_group(size=2, FAIL_AT=7, FAIL_RANK=1)
        self.assertEqual([e[0] for e in ended], [0, 0], ended)
        for _, out, _ in ended:
            self.assertIn(f"holdfast checkpoint step=4 path={self.dir}/step-00000004.pt loaded", out)
            self.assertNotIn("holdfast step=4 ", out)
        resumed = self.last_step(ended[0][1])

        self.dir = self.dir.with_name("undisturbed")
        ended = self.run_group(size=2)
        self.assertEqual(resumed, self.last_step(ended[0][1]))  # printed to nine digits

    def test_a_damaged_checkpoint_is_passed_over(self):
        self.run_group(size=1, FAIL_AT=10)
        (self.dir / "step-00000008.pt").write_bytes(b"PK\x03\x04 not a checkpoint")
        status, out, err = self.run_group(size=1)[0]
        self.assertEqual(status, 0, err)
        self.assertIn(f"skipping the damaged checkpoint {self.dir}/step-00000008.pt", out)
        self.assertIn(f"path={self.dir}/step-00000004.pt loaded", out)

    def test_ranks_that_see_different_checkpoints_say_so(self):
        self.run_group(size=1, FAIL_AT=7)
        group = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE=2)
        ranks = [
            self.start(RANK=0, HOLDFAST_CHECKPOINT_DIR=self.dir, **group),
            self.start(RANK=1, HOLDFAST_CHECKPOINT_DIR=str(self.dir) + "-elsewhere", **group),
        ]
        for rank in ranks:
            _, err = rank.communicate(timeout=LIMIT)
            self.assertEqual(rank.returncode, 1)
            self.assertIn("same checkpoint directory", err)


if __name__ == "__main__":
    unittest.main()
