"""The main job on a real model: texts and chats in, transformers' greedy tokens out (tests/data/golden/smollm2.json)."""
import json
import os
import unittest

import harness
from harness import DATA, Case

harness.TIMEOUT_S = 900
GAP_GUARD = 5e-4  # below this top-2 gap two float32 implementations may choose differently
MODEL = os.environ.get("TOKENMILL_SMOLLM2", "")


@unittest.skipUnless(MODEL, "TOKENMILL_SMOLLM2 does not name the model file (scripts/fetch_model)")
class SmolLM2(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = json.loads((DATA / "golden" / "smollm2.json").read_text(encoding="utf-8"))["cases"]

    def rows(self, cases):
        ask = {"max_tokens": 64, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        return [{"id": case["name"]} | ({"messages": case["messages"]} if "messages" in case else {"prompt": case["prompt"]}) | ask
                for case in cases]

    def judged(self, case, token_ids):
        """The tokens before the first near tie: what we gave and what is right."""
        end = next((i for i, gap in enumerate(case["gaps"]) if gap < GAP_GUARD), len(case["gaps"]))
        return token_ids[:end], case["output_ids"][:end]

    def test_every_token_equals_transformers_in_float32(self):
        done = self.job(self.rows(self.cases), "--dtype", "float", "--max-model-len", "2048", ranks=2, model=MODEL)
        tokens = 0
        for case, row in zip(self.cases, done.rows, strict=True):
            got, want = self.judged(case, row["outputs"][0]["token_ids"])
            self.assertEqual(row["usage"]["prompt_tokens"], len(case["prompt_ids"]), case["name"])
            self.assertEqual(got, want, case["name"])
            tokens += len(got)
        print(f"{tokens} tokens of {len(self.cases)} rows equal", flush=True)
        self.assertGreater(tokens, 2000)

    def test_the_same_bytes_for_any_schedule_in_bfloat16(self):
        rows = self.rows([case for case in self.cases if len(case["prompt_ids"]) <= 64][:8])
        for number, row in enumerate(rows):
            row["max_tokens"] = 16
            if number % 2:
                row |= {"temperature": 0.8, "seed": number, "logprobs": 2}
        rows += [row | {"id": row["id"] + " again"} for row in rows]  # a whole prompt that is cached
        flags = ["--max-model-len", "512"]
        first = self.job(rows, *flags, "--max-num-seqs", "1", "--enable-prefix-caching", "false", model=MODEL)
        self.assertEqual(sum(first.figures("prefix_cache_hits")), 0)
        for ranks, more in [(2, ["--max-num-seqs", "7", "--long-prefill-token-threshold", "16"]),
                            (0, ["--threads", "1", "--max-num-seqs", "3", "--max-num-batched-tokens", "16"])]:
            again = self.job(rows, *flags, *more, ranks=ranks, model=MODEL)
            self.assertEqual(again.bytes, first.bytes)
            self.assertGreater(sum(again.figures("prefix_cache_hits")), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
