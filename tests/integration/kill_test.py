"""SIGKILL to a random rank or to mpirun, at random moments of a job's life: start, rows, merge, and again while it is
continued, each time with another layout. In the end output.jsonl and output.h5 have the bytes of an undisturbed run. A seeded
quarter of an hundred kills; TOKENMILL_TEST_FULL=1: 200 and more rows."""
import os
import pathlib
import random
import signal
import struct
import subprocess
import time
import unittest

from harness import DATA, MPIEXEC, TOKENMILL, Case, environment

FULL = os.environ.get("TOKENMILL_TEST_FULL") == "1"
KILLS = 200 if FULL else 25
NUM_ROWS = 300 if FULL else 100
MODEL = DATA / "models" / "tiny-spread8"
LAYOUTS = [(dp, pp, tp) for dp in (1, 2, 3, 4) for pp in (1, 2) for tp in (1, 2) if dp * pp * tp <= 4]


def children(pid):
    """Processes started by this one, the ranks of a launcher."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry.name))
            except (OSError, IndexError):  # it is gone
                continue
    return found


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def committed(output):
    """Rows that the journal's ledgers name."""
    rows = set()
    for path in (output / "journal" / "ledger").glob("*.ledger"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # a run that begins removes what an earlier one left without rows
            continue
        rows |= {struct.unpack_from("<q", data, at)[0] for at in range(64, len(data) - 47, 48)}
    return rows


def results(output):
    return [(output / name).read_bytes() for name in ("output.jsonl", "output.h5")]


class Kills(Case):
    def setUp(self):
        super().setUp()
        self.dice = random.Random(20261130)
        words = "the river runs past an old mill where people grind corn".split()
        rows = [{"id": i, "prompt": f"{i % 7} " + " ".join(self.dice.choices(words, k=self.dice.randint(1, 9))),
                 "max_tokens": self.dice.randint(1, 24), "ignore_eos": True, "temperature": self.dice.choice([0, 0.8])}
                for i in range(NUM_ROWS)]
        rows[5]["prompt"] = 7  # an error row
        self.rows = self.write("in.jsonl", rows)
        self.num_kills = 0

    def command(self, output, layout):
        dp, pp, tp = layout
        return [MPIEXEC, "-n", str(dp * pp * tp), TOKENMILL, "run", "--model", str(MODEL), "--input", str(self.rows),
                "--output", str(output), "-pp", str(pp), "-tp", str(tp), "--tp-invariant", "2", "--dtype", "float",
                "--commit-seconds", self.dice.choice(["0", "0.02", "0.2"]), "--max-num-seqs", self.dice.choice(["2", "8"]),
                "--max-row-errors", "1", "--max-model-len", "256", "--output-format", "jsonl,hdf5"]

    def start(self, output, layout, env=None):
        with open(self.dir / "stderr", "w", encoding="utf-8") as stderr:
            return subprocess.Popen(self.command(output, layout), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=stderr, env=env or environment(), start_new_session=True)

    def fault(self, layout, calls):
        """A rank dies at one of its calls on the output directory; the first rank makes most of them, the merge's too."""
        dp, pp, tp = layout
        rank = 0 if self.dice.random() < 0.6 else self.dice.randrange(dp * pp * tp)
        return environment(LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH=str(self.dir / "out"),
                           TOKENMILL_FAULT=f"kill:{self.dice.randint(1, calls)}:{rank}")

    def wait_for_moment(self, job, output, longest_s):
        """Until the run has come somewhere: a while since its start, or some rows since then."""
        begin, deadline = time.monotonic(), time.monotonic() + 120
        if self.dice.random() < 0.5:
            until = begin + self.dice.uniform(0, longest_s)
            while job.poll() is None and time.monotonic() < until:
                time.sleep(0.002)
            return
        wanted = len(committed(output)) + self.dice.randint(1, NUM_ROWS // 3)
        while job.poll() is None and len(committed(output)) < wanted and time.monotonic() < deadline:
            time.sleep(0.005)

    def end(self, job, ranks):
        """The launcher and all ranks are gone, by themselves. (mpirun 4.1 may hang when a rank dies before all are started:
        then there are no ranks to wait for.)"""
        deadline = time.monotonic() + 120
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            if time.monotonic() > deadline - 100 and all(map(is_gone, children(job.pid))):
                kill(job.pid)
        code = job.wait(timeout=1)
        while not all(map(is_gone, ranks)) and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [pid for pid in ranks if not is_gone(pid)]
        for pid in left:
            kill(pid)
        self.assertEqual(left, [], "ranks outlived their job")
        return code

    def attempt(self, output, longest_s):
        """One run that is probably killed; its exit code."""
        layout = self.dice.choice(LAYOUTS)
        how = self.dice.choice(["rank", "launcher", "call"])
        job = self.start(output, layout, self.fault(layout, 60) if how == "call" else None)
        if how == "call":
            code = self.end(job, [])
            self.num_kills += code != 0
        else:
            self.wait_for_moment(job, output, longest_s)
            ranks = children(job.pid)
            alive = job.poll() is None
            if alive:
                kill(self.dice.choice(ranks) if how == "rank" and ranks else job.pid)
            code = self.end(job, ranks)
            self.num_kills += alive and code != 0
        text = (self.dir / "stderr").read_text()
        self.assertNotIn("error[", text.replace("error[mpi]", ""), text)  # a rank may see another one go
        return code

    def test_kills_at_random(self):
        begin = time.monotonic()
        undisturbed = self.start(self.dir / "undisturbed", (1, 1, 1))
        self.assertEqual(undisturbed.wait(timeout=120), 0, (self.dir / "stderr").read_text())
        longest_s = 1.2 * (time.monotonic() - begin)
        expected = results(self.dir / "undisturbed")
        self.assertEqual(expected[0].count(b"\n"), NUM_ROWS)
        jobs = 0
        while self.num_kills < KILLS:
            jobs += 1
            output = self.dir / f"out{jobs}"
            done, attempts = set(), 0
            while True:
                attempts += 1
                code = self.attempt(output, longest_s)
                now = committed(output)
                self.assertLessEqual(done, now, "rows that were committed are gone")
                done = now
                if code == 0:
                    break
                self.assertLess(attempts, 200, "the job makes no progress")
            self.assertEqual(results(output), expected, f"job {jobs} after {attempts} runs")
        print(f"{self.num_kills} kills of {jobs} jobs", end=" ", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
