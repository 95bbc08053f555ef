"""Every write of the journal and the merge fails once, in every way a file system can fail: no row is lost or repeated, the
message says which file and what to do, and the same command finishes the job. A seeded sample; TOKENMILL_TEST_FULL=1: all."""
import os
import random
import shutil
import unittest

from harness import TINY, Case, environment, tokenmill

FULL = os.environ.get("TOKENMILL_TEST_FULL") == "1"
SAMPLE = 3  # faults of each kind and scene
# what a fault applies to, in the log of a run's calls
CALLS = {"short": {"write"}, "enospc": {"write"}, "sync": {"fsync", "fdatasync"}, "rename": {"rename"},
         "kill": None, "lost": None, "holes": None}


class Faults(Case):
    def setUp(self):
        super().setUp()
        dice = random.Random(3)
        self.rows = self.write("in.jsonl", [{"id": i, "prompt": f"{i} mills", "max_tokens": dice.randint(1, 6),
                                             "temperature": 0.9} for i in range(7)])
        self.output = self.dir / "out"

    def run_job(self, fault="", log="", output=None):
        env = environment(LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH=str(self.dir / "out"),
                          TOKENMILL_FAULT=fault, TOKENMILL_FAULT_LOG=str(log)) if fault or log else None
        return tokenmill("run", "--model", TINY, "--input", self.rows, "--output", output or self.output,
                         "--commit-seconds", 0, "--max-num-seqs", 3, env=env)

    def calls(self):
        """(operation, path) of every call on the output directory in a run from its present state."""
        log = self.dir / "log"
        log.unlink(missing_ok=True)
        result = self.run_job(log=log)
        self.assertEqual(result.code, 0, result.stderr)
        return [line.split()[1:] for line in log.read_text().splitlines()]

    def set_scene(self, scene):
        shutil.rmtree(self.output, ignore_errors=True)
        if scene.exists():
            shutil.copytree(scene, self.output)

    def check_faults(self, scene, expected, dice):
        self.set_scene(scene)
        calls = self.calls()
        for action, operations in CALLS.items():
            count = sum(operations is None or operation in operations for operation, _ in calls)
            self.assertGreater(count, 1, calls)
            chosen = range(1, count + 1) if FULL else dice.sample(range(1, count + 1), min(count, SAMPLE))
            for at in chosen:
                with self.subTest(scene=scene.name, fault=f"{action}:{at}"):
                    self.set_scene(scene)
                    failed = self.run_job(fault=f"{action}:{at}")
                    self.check_end(action, failed)
                    again = self.run_job()
                    self.assertEqual(again.code, 0, again.stderr)
                    self.assertEqual((self.output / "output.jsonl").read_bytes(), expected)
                    self.assertEqual([path.name for path in self.output.iterdir() if ".tmp." in path.name], [])

    def check_end(self, action, result):
        if action in ("kill", "lost", "holes"):
            self.assertEqual(result.code, -9, result.stderr)
        elif action == "short":
            self.assertEqual(result.code, 0, result.stderr)
        else:
            self.assertEqual(result.code, 4, result.stderr)
            errors = [line for line in result.stderr.splitlines() if line.startswith("error[")]
            self.assertEqual(len(errors), 1, result.stderr)
            self.assertIn(f"error[io] {self.output}", errors[0])
            self.assertIn("give the same command again", errors[0])

    def test_a_new_job_and_one_that_is_continued(self):
        self.assertEqual(self.run_job(output=self.dir / "undisturbed").code, 0)
        expected = (self.dir / "undisturbed" / "output.jsonl").read_bytes()
        dice = random.Random(11)
        self.check_faults(self.dir / "nothing", expected, dice)
        # Half of the rows are there, and what a killed run leaves behind them.
        self.set_scene(self.dir / "nothing")
        middle = len(self.calls()) // 2
        self.set_scene(self.dir / "nothing")
        self.assertEqual(self.run_job(fault=f"kill:{middle}").code, -9)
        ledger = self.output / "journal" / "ledger" / "00000-00000.ledger"
        with open(ledger, "ab") as file:
            file.write(b"torn")
        shutil.copytree(self.output, self.dir / "half")
        self.check_faults(self.dir / "half", expected, dice)


if __name__ == "__main__":
    unittest.main(verbosity=2)
