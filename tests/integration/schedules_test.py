"""output.jsonl has the same bytes whatever the schedule: chunks, prefix cache, pool, ranks, batch, threads. Every pair of
values of these factors occurs in some run; TOKENMILL_TEST_FULL=1 runs all combinations."""
import itertools
import json
import os
import random
import unittest

from harness import Case

FACTORS = {
    "chunk": [16, 64, 0],  # prompt tokens of a row in one step; 0: all
    "cache": ["off", "cold", "warm"],
    "pool": ["ample", "tight"],
    "ranks": [1, 2, 4],
    "seqs": [1, 7, 64],
    "threads": [1, 2],
}
TIGHT_BLOCKS = 12  # of 16 tokens; the longest rows take 11
GROUPS, ROWS_PER_GROUP = 64, 16
WORDS = "the river runs past an old mill where seven people grind corn and tell stories about Paris 123 ...".split()


def pairs(run):
    return {((a, run[a]), (b, run[b])) for a, b in itertools.combinations(FACTORS, 2)}


def all_runs():
    return [dict(zip(FACTORS, values)) for values in itertools.product(*FACTORS.values())]


def pairwise_cover():
    """Runs that hold every pair of values, chosen greedily."""
    candidates = all_runs()
    missing = set().union(*map(pairs, candidates))
    cover = []
    while missing:
        cover.append(max(candidates, key=lambda run: len(pairs(run) & missing)))
        missing -= pairs(cover[-1])
    return cover


def some_rows(unique_salts):
    """Groups of rows with a common beginning, shuffled; greedy and sampled, some with several samples, penalties or
    logprobs. unique_salts: no row may use another's cached blocks."""
    dice = random.Random(11)
    rows = []
    for group in range(GROUPS):
        prefix = f"{group}: " + " ".join(dice.choice(WORDS) for _ in range(14))
        for number in range(ROWS_PER_GROUP):
            row = {"id": f"{group}-{number}", "prompt": f"{prefix} / {dice.choice(WORDS)} {dice.randint(0, 99)}",
                   "max_tokens": 110 if number == 10 else dice.randint(20, 36), "ignore_eos": number % 3 != 0,
                   "temperature": 0.9 if number % 2 else 0, "return_token_ids": True}
            if number % 4 == 1:
                row |= {"seed": group, "top_p": 0.95, "top_k": 50}
            if number % 8 == 3:
                row |= {"n": 2}
            if number % 5 == 2:
                row |= {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "logit_bias": {"65": 1.5}}
            if number % 7 == 0:
                row |= {"logprobs": 2}
            if unique_salts:
                row |= {"cache_salt": row["id"]}
            rows.append(row)
    dice.shuffle(rows)
    return rows


class Schedules(Case):
    def run_one(self, run, dtype):
        flags = ["--dtype", dtype, "--max-model-len", "256", "--max-num-seqs", run["seqs"], "--threads", run["threads"],
                 "--long-prefill-token-threshold", run["chunk"],
                 "--enable-prefix-caching", "false" if run["cache"] == "off" else "true"]
        if run["pool"] == "tight":
            flags += ["--num-gpu-blocks-override", TIGHT_BLOCKS]
        flags += ["--iteration-log", self.dir / f"steps{self.runs + 1}.log"]
        return self.job(some_rows(run["cache"] == "cold"), *flags, ranks=run["ranks"])

    def check_that_it_happened(self, run, result):
        """A run counts for what its factors claim only when that took place."""
        hits = sum(result.figures("prefix_cache_hits"))
        if run["cache"] == "warm":
            self.assertGreater(hits, 0)
        else:
            self.assertEqual(hits, 0)
        if run["pool"] == "tight" and run["seqs"] > 1:
            self.assertGreater(sum(result.figures("preemptions")), 0)
        if run["pool"] == "ample" and run["seqs"] == 64:
            self.assertGreaterEqual(self.largest_batch(), 32)

    def largest_batch(self):
        """Sequences of the largest step of the last run. (Of the mean a busy machine decides: when a row comes, and whom.)"""
        logs = [path.read_text().splitlines() for path in self.dir.glob(f"steps{self.runs}.log*")]
        return max(json.loads(line)["sequences"] for log in logs for line in log)

    def check_all(self, dtype):
        runs = all_runs() if os.environ.get("TOKENMILL_TEST_FULL") == "1" else pairwise_cover()
        first = None
        for run in runs:
            with self.subTest(dtype=dtype, **run):
                result = self.run_one(run, dtype)
                first = first or result
                self.assertEqual(result.bytes, first.bytes)
                self.check_that_it_happened(run, result)
        self.assertEqual([row["error"] for row in first.rows], [None] * (GROUPS * ROWS_PER_GROUP))

    def test_the_cover_holds_every_pair(self):
        cover = pairwise_cover()
        self.assertEqual(set().union(*map(pairs, cover)), set().union(*map(pairs, all_runs())))
        self.assertLess(len(cover), 16)

    def test_float32(self):
        self.check_all("float")

    def test_bfloat16(self):
        self.check_all("bfloat16")


if __name__ == "__main__":
    unittest.main(verbosity=2)
