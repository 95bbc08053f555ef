"""What a kill costs: the tokens of the rows in flight and of those that finished in the last commit interval, no others; and
what a drain costs: nothing. By the engine's own counters, and by the journal's list of rows that run."""
import os
import random
import re
import signal
import struct
import subprocess
import time
import unittest

from harness import TINY, TOKENMILL, Case, environment

COMMIT_S = 0.5
SLACK_S = 1.0  # until the commit's thread has its turn and its fdatasync is through, on a busy machine
MAX_NUM_SEQS = 4


class Loss(Case):
    def setUp(self):
        super().setUp()
        dice = random.Random(7)
        self.tokens = [dice.randint(120, 240) for _ in range(4000)]
        self.rows = self.write("in.jsonl", [{"prompt": f"row {i}", "max_tokens": count, "ignore_eos": True}
                                            for i, count in enumerate(self.tokens)])

    def start(self, output, *flags, env=None):
        return subprocess.Popen([TOKENMILL, "run", "--model", TINY, "--input", self.rows, "--output", output, "--commit-seconds",
                                 str(COMMIT_S), "--max-num-seqs", str(MAX_NUM_SEQS), *flags], stdin=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, env=env or environment())

    def finish(self, job, expect):
        """The run ends by itself, or has been killed."""
        _, errors = job.communicate(timeout=300)
        self.assertEqual(job.returncode, expect, errors)

    @staticmethod
    def generated(output):
        return int(re.search(r"^tokens:\n  prompt: \d+\n  generation: (\d+)$", (output / "run.yaml").read_text(), re.MULTILINE)[1])

    @staticmethod
    def committed(output):
        data = b"".join(path.read_bytes()[64:] for path in (output / "journal/ledger").glob("*.ledger"))
        return {struct.unpack_from("<q", data, at)[0] for at in range(0, len(data) - 47, 48)}

    def wait_for_rows(self, job, output, count):
        end = time.monotonic() + 120
        while len(self.committed(output)) < count:
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(job.poll(), "it ended by itself")
            time.sleep(0.02)

    @staticmethod
    def times(log):
        """(row -> when it began, row -> when it finished), from the calls on the list of running rows."""
        began, finished, slots = {}, {}, {}
        for line in log.read_text().splitlines():
            words = line.split()
            if words[1] == "pwrite" and words[2].endswith(".rows"):
                slot, value = int(words[4]), int(words[5])
                if value:
                    slots[slot] = value - 1
                    began[value - 1] = float(words[3])
                else:
                    finished[slots.pop(slot)] = float(words[3])
        return began, finished

    def test_kills(self):
        """Two of one job: each run generates the tokens of the rows that no run before has committed, none else."""
        output, done = self.dir / "out", set()
        for number in range(2):
            log = self.dir / f"log{number}"
            job = self.start(output, env=environment(LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH=str(output),
                                                     TOKENMILL_FAULT_LOG=str(log)))
            self.wait_for_rows(job, output, len(done) + 200)
            time.sleep(2 * SLACK_S + random.Random(number).uniform(0, COMMIT_S))  # a later commit than promised would be seen
            killed_s = time.monotonic()
            job.kill()
            self.finish(job, -signal.SIGKILL)
            began, finished = self.times(log)
            now = self.committed(output)
            self.assertEqual(done & set(began), set(), "rows that were committed began again")
            done = now
            in_flight = set(began) - set(finished)
            self.assertLessEqual(len(in_flight), MAX_NUM_SEQS)
            lost = set(finished) - done
            late = [row for row in lost if finished[row] < killed_s - COMMIT_S - SLACK_S]
            self.assertEqual(late, [], "finished long before the kill, and not in the journal")
            print(f"kill {number}: {len(finished)} rows finished; {len(lost)} lost with {sum(self.tokens[row] for row in lost)} "
                  f"tokens, {len(in_flight)} in flight", flush=True)
        self.finish(self.start(output), 0)
        self.assertEqual(self.generated(output), sum(count for row, count in enumerate(self.tokens) if row not in done))

    def test_drains(self):
        """By each signal: over all runs every token is generated once."""
        output, generated = self.dir / "out", 0
        for run, number in enumerate((signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR2)):
            job = self.start(output)
            self.wait_for_rows(job, output, 300 * (run + 1))
            job.send_signal(number)
            self.finish(job, 75)
            generated += self.generated(output)
        self.finish(self.start(output), 0)
        self.assertEqual(generated + self.generated(output), sum(self.tokens))


if __name__ == "__main__":
    unittest.main(verbosity=2)
