"""Weights come from the file system once per node, and replicas of a node have one copy of them in memory."""
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

from harness import MPIEXEC, TOKENMILL, Case, environment

FULL = "TOKENMILL_TEST_FULL" in os.environ
MEGABYTES = 1100 if FULL else 64
GENERATOR = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "fixtures" / "random_llama.py"


def children(pid):
    """All processes below pid that run tokenmill."""
    found, parents = [], {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    for child in parents:
        at = child
        while at in parents and at != pid:
            at = parents[at]
        try:
            if at == pid and child != pid and os.readlink(f"/proc/{child}/exe") == os.path.realpath(TOKENMILL):
                found.append(child)
        except OSError:
            continue
    return found


class Watch:
    """The last readings of each rank of a running job."""

    def __init__(self):
        self.read_bytes, self.shared, self.private = {}, {}, {}
        self.sums = []  # of the proportional shares of all ranks, each time that all had one

    def look(self, pid):
        """Returns the rank's proportional share of shared memory."""
        try:
            io = pathlib.Path(f"/proc/{pid}/io").read_text()
            smaps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return 0
        resident = share = 0
        name = ""
        for line in smaps.splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                name = line
            elif "memfd:" in name and line.startswith("Rss:"):
                resident += int(line.split()[1]) << 10
            elif "memfd:" in name and line.startswith("Pss:"):
                share += int(line.split()[1]) << 10
        if not smaps:
            return 0
        self.read_bytes[pid] = int(re.search(r"rchar: (\d+)", io)[1])
        self.shared[pid] = max(resident, self.shared.get(pid, 0))
        anonymous = re.search(r"RssAnon:\s+(\d+)", status)
        self.private[pid] = int(anonymous[1]) << 10 if anonymous else 0
        return share


class Weights(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = pathlib.Path(tempfile.mkdtemp(prefix="tokenmill-weights-"))
        cls.addClassCleanup(shutil.rmtree, cls.model, ignore_errors=True)
        subprocess.run([sys.executable, GENERATOR, cls.model, "--megabytes", str(MEGABYTES), "--hidden", "512"], check=True,
                       stdout=subprocess.DEVNULL)
        cls.checkpoint_bytes = sum(f.stat().st_size for f in cls.model.glob("*.safetensors"))

    def watch(self, ranks, *flags):
        """Runs a job of some seconds and reads what its ranks do meanwhile."""
        rows = [{"prompt_token_ids": [i % 200 + 4 for i in range(32)], "max_tokens": 24, "ignore_eos": True}
                for _ in range(4 * ranks)]
        self.runs += 1
        output = self.dir / f"out{self.runs}"
        job = subprocess.Popen([MPIEXEC, "-n", str(ranks), TOKENMILL, "run", "--model", self.model, "--input",
                                self.write("rows.jsonl", rows), "--output", output, "--temperature", "0", "--threads", "1",
                                "--num-gpu-blocks-override", "64", "--max-num-seqs", "4", *flags],
                               env=environment(), stderr=subprocess.PIPE, text=True)
        watch = Watch()
        while job.poll() is None:
            shares = [watch.look(pid) for pid in children(job.pid)]
            if len(shares) == ranks and min(shares) > 0:
                watch.sums.append(sum(shares))
            time.sleep(0.05)
        errors = job.stderr.read()
        job.stderr.close()
        self.assertEqual(job.returncode, 0, errors)
        text = (output / "run.yaml").read_text()
        figures = lambda name: [int(value) for value in re.findall(rf"\b{name}: (\d+),", text)]
        return watch, figures

    def test_four_ranks_of_a_node_read_each_byte_once(self):
        for flags in ([], ["--tensor-parallel-size", "4"], ["--pipeline-parallel-size", "2"],
                      ["--load", "broadcast"]):
            with self.subTest(flags=flags):
                watch, figures = self.watch(4, *flags)
                self.assertEqual(len(watch.read_bytes), 4)
                read = sum(figures("weight_bytes_read"))
                # All tensors, and small gaps that are read over; headers are read apart.
                self.assertLess(abs(self.checkpoint_bytes - read), 1 << 20, "bytes of weights read")
                # What the system counted, with the ends of the files that tell versions apart, tokenizers and libraries.
                self.assertLess(sum(watch.read_bytes.values()), self.checkpoint_bytes + (56 << 20))

    def test_two_replicas_of_a_node_have_the_weights_of_one(self):
        watch, figures = self.watch(2)
        weights = figures("weight_bytes")[0]
        self.assertEqual(figures("weight_sharers"), [2, 2])
        self.assertEqual(len(watch.shared), 2)
        for pid in watch.shared:
            self.assertGreater(watch.shared[pid], 0.8 * weights, "each has all of them but rows of the embedding")
            self.assertLess(watch.private[pid], weights / 2 + (48 << 20), "none has a copy of its own")
        together = statistics.median(watch.sums)  # a rank may touch pages, or let go, between two looks
        self.assertGreater(together, 0.9 * weights)
        self.assertLess(together, 1.15 * weights + (16 << 20), "together they take the memory of one copy")


if __name__ == "__main__":
    unittest.main()
