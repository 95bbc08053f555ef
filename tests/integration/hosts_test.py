"""Ranks on two hosts: who is placed where, the bytes of one host over TCP, and the end of a job that lost a rank."""
import re
import signal
import subprocess
import time
import unittest

from harness import DATA, TOKENMILL, Case, environment
from parallel_test import some_rows
from two_hosts import TwoHosts

HOSTS = None
ROWS = [{"id": i, "prompt": "the river", "max_tokens": 3} for i in range(4)]


def setUpModule():
    global HOSTS
    HOSTS = TwoHosts()
    unittest.addModuleCleanup(HOSTS.close)


def model(name):
    return DATA / "models" / name


def layout(result):
    """Per world rank of run.yaml: (host as "a" or "b", local rank, dp rank, pp rank, tp rank)."""
    for host, node, *_ in result.layout:
        assert HOSTS.names[node] == host, result.layout
    return [(host[-1], *coordinates) for host, _, *coordinates in result.layout]


def rank_map(result):
    """The banner's lines about ranks, as "ranks 0-1: a, local ranks 0-1; dp 0, pp 0, tp 0-1"."""
    lines = re.findall(r"info (ranks? [^:]*): nodes? \S+ \(tm\d+([ab])(?: \.\.\. tm\d+([ab]))?\), (local .*), NUMA .*; (dp .*): layers?",
                       result.stderr)
    return [f"{ranks}: {first}{last and '-' + last}, {local}; {place}" for ranks, first, last, local, place in lines]


class Placement(Case):
    def check(self, slots, options, flags, expected_map, expected_layout):
        result = self.job(ROWS, "--threads", "1", *flags, model=model("tiny-spread8"),
                          launcher=HOSTS.mpirun(slots, *options))
        self.assertEqual(rank_map(result), expected_map, result.stderr)
        self.assertEqual(layout(result), expected_layout)
        self.assertIn(f"{sum(slots)} ranks on 2 nodes", result.stderr)
        return result

    def test_block(self):
        result = self.check((2, 2), [], ["-tp", 2],
                            ["ranks 0-3: a-b, local ranks 0-1; dp 0-1, pp 0, tp 0-1"],
                            [("a", 0, 0, 0, 0), ("a", 1, 0, 0, 1), ("b", 0, 1, 0, 0), ("b", 1, 1, 0, 1)])
        self.assertNotIn("cross nodes", result.stderr)

    def test_cyclic(self):
        result = self.check((2, 2), ["--map-by", "node"], ["-tp", 2],
                            ["ranks 0, 2, 1, 3: a-b, local ranks 0-1; dp 0-1, pp 0, tp 0-1"],
                            [("a", 0, 0, 0, 0), ("b", 0, 1, 0, 0), ("a", 1, 0, 0, 1), ("b", 1, 1, 0, 1)])
        self.assertNotIn("cross nodes", result.stderr)

    def test_cyclic_stages(self):
        result = self.check((2, 2), ["--map-by", "node"], ["-tp", 2, "-pp", 2],
                            ["ranks 0, 2: a, local ranks 0-1; dp 0, pp 0, tp 0-1", "ranks 1, 3: b, local ranks 0-1; dp 0, pp 1, tp 0-1"],
                            [("a", 0, 0, 0, 0), ("b", 0, 0, 1, 0), ("a", 1, 0, 0, 1), ("b", 1, 0, 1, 1)])
        self.assertNotIn("cross nodes", result.stderr)

    def test_uneven(self):
        self.check((3, 1), [], [],
                   ["ranks 0-2: a, local ranks 0-2; dp 0-2, pp 0, tp 0", "rank 3: b, local rank 0; dp 3, pp 0, tp 0"],
                   [("a", 0, 0, 0, 0), ("a", 1, 1, 0, 0), ("a", 2, 2, 0, 0), ("b", 0, 3, 0, 0)])

    def test_uneven_where_one_group_has_to_cross(self):
        result = self.check((3, 1), [], ["-tp", 2],
                            ["ranks 0-1: a, local ranks 0-1; dp 0, pp 0, tp 0-1", "rank 2: a, local rank 2; dp 1, pp 0, tp 0",
                             "rank 3: b, local rank 0; dp 1, pp 0, tp 1"],
                            [("a", 0, 0, 0, 0), ("a", 1, 0, 0, 1), ("a", 2, 1, 0, 0), ("b", 0, 1, 0, 1)])
        self.assertEqual(result.stderr.count("cross nodes"), 1, result.stderr)
        self.assertIn("warning 1 of 2 tensor-parallel groups cross nodes", result.stderr)


def id_rows():
    """Rows of token ids below 259, greedy and sampled."""
    return [{"id": i, "prompt_token_ids": [(7 * i + 3 * at) % 259 for at in range(3 + i % 9)], "max_tokens": 6 + i % 11,
             "temperature": 0.8 * (i % 2), "ignore_eos": True, "return_token_ids": True} for i in range(32)]


class SameBytes(Case):
    def check(self, name, tp, pp, slots, *options, rows=None):
        """Runs the layout over two hosts, and tp ranks on this machine, in float32; returns the first result.

        The pool and batches are so small that rows wait."""
        rows = rows or some_rows()
        flags = ["--dtype", "float", "--max-model-len", "192", "--max-num-seqs", "12", "--threads", "1",
                 "--max-num-batched-tokens", "64", "--num-gpu-blocks-override", "40", "-tp", tp]
        before = HOSTS.cable_bytes()
        result = self.job(rows, *flags, "-pp", pp, launcher=HOSTS.mpirun(slots, *options), model=model(name))
        self.over_cable = HOSTS.cable_bytes() - before
        self.assertEqual([row["error"] for row in result.rows], [None] * len(rows))
        self.assertEqual(result.bytes, self.job(rows, *flags, ranks=tp, model=model(name)).bytes)
        return result

    def test_replicas_across_and_tensor_parallel_inside(self):
        self.assertNotIn("cross nodes", self.check("tiny-spread8", 2, 1, (2, 2)).stderr)
        self.check("tiny-vocab259", 2, 1, (2, 2), "--map-by", "node", rows=id_rows())

    def test_stages_across_and_tensor_parallel_inside(self):
        for name, tp in (("tiny-spread8", 2), ("tiny-spread3", 3)):
            with self.subTest(model=name):
                result = self.check(name, tp, 2, (tp, tp))
                self.assertNotIn("cross nodes", result.stderr)
                # At least every generated token's residual stream went from stage to stage: 48 floats.
                self.assertGreater(self.over_cable, result.figures("generation_tokens")[0] * 48 * 4)

    def test_tensor_parallel_groups_that_cross_run_and_warn_with_the_cost(self):
        # (tp, slots, cost): two sums a layer, of 48 floats from each rank on the other node
        for tp, slots, cost in ((2, (1, 1), "384 B"), (4, (2, 2), "768 B"), (4, (3, 1), "1.12 KiB")):
            with self.subTest(tp=tp, slots=slots):
                result = self.check("tiny-spread8", tp, 1, slots)
                self.assertEqual(result.stderr.count(
                    f"warning 1 of 1 tensor-parallel groups cross nodes: each token brings a rank up to {cost} from other "
                    "nodes in each of the 5 layers"), 1, result.stderr)
                # Both sums of each layer go at least one way.
                self.assertGreater(self.over_cable, result.figures("generation_tokens")[0] * 5 * 2 * 48 * 4)


class LostRank(Case):
    """A rank on the second host is killed while it works."""

    def check(self, slots, flags, rank):
        rows = self.write("long.jsonl", [{"id": i, "prompt": f"the river {i}", "max_tokens": 200, "ignore_eos": True}
                                         for i in range(20000)])
        log = self.dir / "log"
        command = [*HOSTS.mpirun(slots), TOKENMILL, "run", "--model", model("tiny-spread8"), "--input", rows, "--threads", "1",
                   "--output", self.dir / "o", "--restart", *flags]
        with open(log, "wb") as stderr, subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stderr=stderr,
                                                         stdout=subprocess.DEVNULL, env=environment()) as job:
            try:
                end = time.monotonic() + 60
                while " running, " not in log.read_text() and job.poll() is None and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertIn(" running, ", log.read_text())
                victim = HOSTS.rank_process(1, rank)
                self.assertIsNotNone(victim)
                start = time.monotonic()
                subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(victim)], check=True)
                code = job.wait(20)
                seconds = time.monotonic() - start
            finally:
                job.kill()
        text = log.read_text()
        self.assertNotEqual(code, 0)
        self.assertLess(seconds, 8, text)
        self.assertRegex(text, rf"rank {rank} with PID \d+ on node {HOSTS.names[1]} exited on signal 9")
        self.assertNotIn("done:", text)
        self.assertTrue(HOSTS.wait_until_idle(8), [HOSTS.processes(host) for host in (0, 1)])
        self.assertEqual(HOSTS.leftovers(), [])
        self.assertFalse((self.dir / "o" / "output.jsonl").exists())
        return text

    def test_of_a_stage(self):
        self.check((1, 1), ["-pp", 2], 1)

    def test_of_a_tensor_parallel_group(self):
        # Its peer on the same host notices too; the other host has only mpirun's word.
        self.check((2, 2), ["-tp", 2, "-pp", 2], 3)

    def test_of_a_replica(self):
        self.check((1, 1), [], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
