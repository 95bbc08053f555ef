"""output.jsonl has the same bytes whatever computes it: ranks, threads, batch size, order of the rows."""
import json
import random
import unittest

from harness import Case, available_isas

WORDS = "the river runs past an old mill where seven people grind corn and tell stories about Paris 123 ...".split()


def some_rows(count, seeded):
    """Plain and chat rows of 1 to ~60 words; greedy, or sampled with and without seeds of their own."""
    dice = random.Random(5)
    rows = []
    for number in range(count):
        text = " ".join(dice.choice(WORDS) for _ in range(dice.choice([1, 2, 5, 9, 17, 60])))
        row = {"id": f"row-{number}", "max_tokens": dice.randint(1, 24), "ignore_eos": number % 3 != 0}
        row |= {"messages": [{"role": "user", "content": text}]} if number % 4 == 0 else {"prompt": text}
        if seeded:
            row |= {"temperature": 0.9, "top_p": 0.95, "top_k": 50} | ({"seed": number} if number % 2 else {})
        rows.append(row)
    return rows


class Invariance(Case):
    def check_all_ways(self, seeded, dtype, isa):
        rows = some_rows(60, seeded)
        flags = ["--dtype", dtype, "--cpu-isa", isa, "--max-model-len", "256", "--temperature", "0"]
        first = self.job(rows, *flags, "--threads", "1")
        self.assertEqual([row["id"] for row in first.rows], [row["id"] for row in rows])
        self.assertEqual([row["row"] for row in first.rows], list(range(60)))
        for ranks, more in [(0, ["--threads", "2"]), (1, []), (2, []), (4, ["--threads", "1"]),
                            (0, ["--max-num-seqs", "1"]), (0, ["--max-num-seqs", "3"]),
                            (2, ["--max-num-seqs", "3", "--max-num-batched-tokens", "8"])]:
            again = self.job(rows, *flags, *more, ranks=ranks)
            self.assertEqual(again.bytes, first.bytes, f"{dtype} {isa} seeded={seeded} ranks={ranks} {more}")

    def test_greedy_float32(self):
        self.check_all_ways(False, "float", "auto")

    def test_seeded_float32(self):
        self.check_all_ways(True, "float", "auto")

    def test_greedy_bfloat16(self):
        self.check_all_ways(False, "bfloat16", "auto")

    def test_seeded_bfloat16(self):
        self.check_all_ways(True, "bfloat16", "auto")

    def test_every_kernel_family_of_this_cpu(self):
        isas = available_isas()
        for isa in isas[:-1]:  # the best one is auto
            for seeded, dtype in [(False, "float"), (True, "bfloat16")]:
                self.check_all_ways(seeded, dtype, isa)
        if len(isas) == 1:
            self.skipTest("this CPU has one kernel family (avx2), which the other tests run")

    def test_a_full_batch_really_runs_together(self):
        # Long enough that reading and tokenizing rows keeps up with the steps of a tiny model on a busy machine.
        rows = [{"id": i, "prompt": f"row {i}", "max_tokens": 200, "ignore_eos": True, "temperature": 0} for i in range(128)]
        alone = self.job(rows, "--max-num-seqs", "1")
        together = self.job(rows, "--max-num-seqs", "64")
        self.assertEqual(together.bytes, alone.bytes)
        self.assertLessEqual(alone.figures("mean_running")[0], 1)
        self.assertGreaterEqual(together.figures("mean_running")[0], 32)

    def test_shuffled_rows_get_the_answers_of_their_ids(self):
        rows = some_rows(40, True)
        def by_id(result):
            return sorted(json.dumps({**row, "row": 0}) for row in result.rows)
        shuffled = rows[:]
        random.Random(1).shuffle(shuffled)
        self.assertEqual(by_id(self.job(rows)), by_id(self.job(shuffled, "--max-num-seqs", "5", ranks=2)))

    def test_rows_that_share_beginnings_or_are_equal(self):
        dice = random.Random(3)
        beginnings = [" ".join(dice.choice(WORDS) for _ in range(40)) for _ in range(4)]
        rows = [{"id": i, "prompt": f"{dice.choice(beginnings)} {i % 7}", "max_tokens": 6, "ignore_eos": True,
                 "temperature": 0} | ({"temperature": 0.9, "seed": i % 2} if i % 3 == 0 else {}) for i in range(80)]
        flags = ["--max-model-len", "256", "--threads", "1"]
        first = self.job(rows, *flags)
        for ranks, more in [(0, ["--dedup", "true"]), (2, ["--dedup", "true", "--max-num-seqs", "3"]),
                            (2, ["--plan-window-rows", "1", "--max-num-seqs", "2"])]:
            again = self.job(rows, *flags, *more, ranks=ranks)
            self.assertEqual(again.bytes, first.bytes, f"ranks={ranks} {more}")
            if "--dedup" in more:
                self.assertGreater(sum(again.figures("deduplicated")), 0)

    def test_seeds_decide(self):
        row = {"id": 1, "prompt": "The capital of France is", "temperature": 1.5, "max_tokens": 24, "ignore_eos": True}
        texts = [row["outputs"][0]["text"] for row in self.job(
            [row | {"seed": 1}, row | {"seed": 2}, row | {"seed": 1, "id": 2}, row, row | {"id": 2}]).rows]
        self.assertEqual(texts[0], texts[2])  # the row's own seed, whatever its id
        self.assertNotEqual(texts[0], texts[1])
        self.assertNotEqual(texts[3], texts[4])  # without a seed: the id
        one, two = ([r["outputs"][0]["text"] for r in self.job([row], "--seed", seed).rows] for seed in (1, 2))
        self.assertNotEqual(one, two)


if __name__ == "__main__":
    unittest.main(verbosity=2)
