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
CALLS = {"short": {"write", "pwrite"}, "enospc": {"write", "pwrite"}, "sync": {"fsync", "fdatasync"}, "rename": {"rename"},
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
                         "--commit-seconds", 0, "--max-num-seqs", 3, "--output-format", "jsonl,hdf5", env=env)

    @staticmethod
    def results(output):
        return [(output / name).read_bytes() for name in ("output.jsonl", "output.h5")]

    def calls(self):
        """(operation, path) of every call on the output directory in a run from its present state."""
        log = self.dir / "log"
        log.unlink(missing_ok=True)
        result = self.run_job(log=log)
        self.assertEqual(result.code, 0, result.stderr)
        return [line.split()[1:3] for line in log.read_text().splitlines()]

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
                    self.assertEqual(self.results(self.output), expected)
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
        expected = self.results(self.dir / "undisturbed")
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

    def test_a_kill_during_the_hdf5_merge_leaves_the_earlier_file_or_none(self):
        """All rows are done; the run that only merges dies at calls on output.h5, whose earlier version is there or not."""
        self.assertEqual(self.run_job().code, 0)
        expected = self.results(self.output)
        for name in ("output.jsonl", "output.h5"):
            (self.output / name).unlink()
        shutil.copytree(self.output, self.dir / "done")
        calls = self.calls()
        on_tables = [number for number, (_, path) in enumerate(calls, 1) if "/output.h5" in path]
        renamed = next(number for number in on_tables if calls[number - 1][0] == "rename")
        self.assertGreater(sum(calls[number - 1][0] == "pwrite" for number in on_tables), 3, calls)
        chosen = set(on_tables) if FULL else {on_tables[0], renamed - 1, renamed, renamed + 1,
                                              *random.Random(5).sample(on_tables, 4)}
        for at in sorted(chosen):
            for earlier in (None, b"earlier"):
                with self.subTest(call=calls[at - 1], at=at, earlier=earlier):
                    self.set_scene(self.dir / "done")
                    tables = self.output / "output.h5"
                    if earlier:
                        tables.write_bytes(earlier)
                    self.assertEqual(self.run_job(fault=f"kill:{at}").code, -9)
                    left = tables.read_bytes() if tables.exists() else None
                    self.assertEqual(left, expected[1] if at > renamed else earlier)
                    self.assertFalse((self.output / "output.jsonl").exists(), "it says that all results are there")
                    again = self.run_job()
                    self.assertEqual(again.code, 0, again.stderr)
                    self.assertEqual(self.results(self.output), expected)
                    self.assertEqual([path.name for path in self.output.iterdir() if ".tmp." in path.name], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
