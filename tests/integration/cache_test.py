"""What one row leaves in the prefix cache for the next, in whole runs: the same answers, and hits only where they are due."""
import unittest

from harness import Case

ONE_BY_ONE = ["--max-num-seqs", 1, "--plan-window-rows", 1, "--threads", 1]
BLOCK = 16


def prompt(length, start=5):
    return [start + 7 * i * i % 390 for i in range(length)]


def rows_of(length):
    """Twice the same, penalties twice, a row that shares the first block only, and scores of the whole prompt."""
    plain = {"prompt_token_ids": prompt(length), "temperature": 0, "max_tokens": 8, "ignore_eos": True, "logprobs": 1,
             "allowed_token_ids": list(range(70, 80)), "return_token_ids": True}
    penalized = plain | {"repetition_penalty": 2.0, "frequency_penalty": 0.25, "presence_penalty": 0.5}
    other = plain | {"prompt_token_ids": prompt(length)[:BLOCK] + prompt(length - BLOCK, start=9)}
    scored = plain | {"prompt_logprobs": 1}
    return [plain, plain, penalized, penalized, other, scored, plain]


class Cache(Case):
    def test_a_prompt_that_is_cached_to_its_end(self):
        lengths = [2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1]
        rows = [row | {"cache_salt": str(length)} for length in lengths for row in rows_of(length)]
        off = self.job(rows, *ONE_BY_ONE, "--enable-prefix-caching", "false")
        self.assertEqual(off.figures("prefix_cache_hits")[0], 0)
        for i, length in enumerate(lengths):
            plain, again, penalized, _, other, scored, _ = off.rows[7 * i:7 * i + 7]
            self.assertEqual(plain["outputs"], again["outputs"])
            self.assertNotEqual(plain["outputs"][0]["token_ids"], penalized["outputs"][0]["token_ids"])
            self.assertEqual((scored["prompt_logprobs"][0], len(scored["prompt_logprobs"])), (None, length))
        # Of each length five rows read the cache: four all but the last token at the least, the other one a block.
        expected = sum(4 * (length - 1 if length % BLOCK == 0 else length // BLOCK * BLOCK) + BLOCK for length in lengths)
        for chunk in (0, BLOCK, BLOCK - 1):
            for seqs in ([], ["--max-num-seqs", 8]):
                with self.subTest(chunk=chunk, seqs=seqs):
                    on = self.job(rows, *ONE_BY_ONE[2 * bool(seqs):], *seqs, "--long-prefill-token-threshold", chunk)
                    self.assertEqual(on.bytes, off.bytes)
                    if not seqs:
                        self.assertEqual(on.figures("prefix_cache_hits")[0], expected)

    def test_rows_of_different_salts_share_nothing(self):
        row = {"prompt_token_ids": prompt(2 * BLOCK + 8), "temperature": 0, "max_tokens": 6, "ignore_eos": True}
        salts = ["s1", "s1", "s2", None, "s2", None]
        rows = [row | ({"cache_salt": salt} if salt else {}) for salt in salts]
        off = self.job(rows, *ONE_BY_ONE, "--enable-prefix-caching", "false")
        for count, hits in ((1, 0), (2, 1), (3, 1), (4, 1), (6, 3)):
            on = self.job(rows[:count], *ONE_BY_ONE)
            self.assertEqual(on.rows, off.rows[:count])
            self.assertEqual(on.figures("prefix_cache_hits")[0], hits * 2 * BLOCK, salts[:count])


if __name__ == "__main__":
    unittest.main(verbosity=2)
