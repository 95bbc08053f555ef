"""Contexts of many thousand tokens: the tokens of transformers, bounded KV memory with a sliding window, and positions up
to a million within the memory plan."""
import json
import os
import shutil
import unittest

from harness import DATA, Case

FULL = "TOKENMILL_TEST_FULL" in os.environ
GOLDEN = json.loads((DATA / "golden" / "long.json").read_text())["cases"]


def prompt(length):
    """As scripts/fixtures/long_golden.py."""
    return [4 + (31 * i * i + 7919 * i) % 400 for i in range(length)]


class LongContext(Case):
    def stretched(self, name, changes):
        """A copy of a tiny model with other entries in its config.json."""
        copy = self.dir / f"model-{name}"
        if not copy.exists():
            shutil.copytree(DATA / "models" / name, copy)
            config = json.loads((copy / "config.json").read_text())
            (copy / "config.json").write_text(json.dumps(config | changes))
        return copy

    def answer(self, model, ids, *flags, max_tokens=8, **more):
        row = {"id": 1, "prompt_token_ids": ids, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0,
               "return_token_ids": True}
        return self.job([row], "--dtype", "float", *flags, model=model, **more)

    def test_stretched_rope_gives_the_tokens_of_transformers(self):
        for case in GOLDEN:
            with self.subTest(case["model"]):
                result = self.answer(self.stretched(case["model"], case["config"]), prompt(case["length"]),
                                     "--max-model-len", 131072, "--max-num-seqs", 1)
                self.assertEqual(result.rows[0]["outputs"][0]["token_ids"], case["output_ids"])

    def test_a_long_row_beside_short_ones_changes_no_bit(self):
        case = GOLDEN[0]
        model = self.stretched(case["model"], case["config"])
        short = [{"id": f"s{i}", "prompt": f"row {i}", "max_tokens": 16, "ignore_eos": True} for i in range(6)]
        long = {"id": "long", "prompt_token_ids": prompt(5000), "max_tokens": 4, "ignore_eos": True}
        rows = short[:3] + [long] + short[3:]
        first = self.job(rows, "--max-model-len", 131072, "--max-num-seqs", 8, model=model)
        for flags in [["--long-prefill-token-threshold", 64], ["--max-num-batched-tokens", 8192, "--threads", 1]]:
            again = self.job(rows, "--max-model-len", 131072, "--max-num-seqs", 8, *flags, model=model)
            self.assertEqual(again.bytes, first.bytes)

    def test_a_full_batch_leaves_a_sliding_windows_shared_prompts_cached(self):
        """Running rows give blocks back as the window moves on; what others share stays there for them to hit."""
        rows = []
        for group in range(12):
            shared = [4 + (37 * i * i + 101 * group) % 400 for i in range(160)]
            rows += [{"id": f"{group}.{i}", "prompt_token_ids": shared + [4 + (group * 31 + i * 7 + j) % 400 for j in range(12)],
                      "max_tokens": 40, "ignore_eos": True} for i in range(12)]
        rows = rows[::5] + rows[1::5] + rows[2::5] + rows[3::5] + rows[4::5]
        outputs = set()
        for pool in [[], ["--num-gpu-blocks-override", 96]]:  # as planned, and little more than what runs needs
            log = self.dir / "steps.jsonl"
            result = self.job(rows, "--max-num-seqs", 16, "--max-num-batched-tokens", 256, "--iteration-log", log, *pool,
                              model=DATA / "models" / "tiny-mistral")
            outputs.add(result.bytes)
            self.assertEqual(result.figures("prefix_cache_hits")[0], 12 * 11 * 160)  # each shared prompt computed once
            if not pool:
                # While rows wait, once that the batch has been full: how fast rows come in does not matter then.
                steps = [json.loads(line) for line in log.read_text().splitlines()]
                full = next(i for i, step in enumerate(steps) if step["running"] == 16)
                running = [step["running"] for step in steps[full:] if step["waiting"] > 0]
                self.assertGreater(sum(running) / len(running), 15)
        self.assertEqual(len(outputs), 1)

    def test_scores_of_100_000_tokens_are_right_wherever_one_looks_and_need_no_logits(self):
        """A window of 24 and two layers: a score depends on the 48 tokens before it, and a short prompt of these has it."""
        length = 100_000
        model = self.stretched("tiny-mistral", {"max_position_embeddings": 1 << 18})
        ids = prompt(length)
        flags = ["--dtype", "float", "--max-model-len", 1 << 17, "--max-num-seqs", 1, "--max-num-batched-tokens", 1024]
        score = {"max_tokens": 0, "prompt_logprobs": 1}
        whole = self.job([score | {"prompt_token_ids": ids}], *flags, model=model)
        scores = whole.rows[0]["prompt_logprobs"]
        self.assertEqual(len(scores), length)
        self.assertEqual([entry["id"] for entry in scores[1:]], ids[1:])
        places = [1, 2, 1023, 1024, 1025, 50_000, 77_777, 98_304, length - 1]
        # Rotary positions are relative: the same tokens further to the front give the same score, but for the angles'
        # rounding to float32, 2^-24 of the position. (Transformers at these positions: 1e-5 off to the front, 0.005 behind.)
        rows = [score | {"prompt_token_ids": ids[max(0, place - 100):place + 1]} for place in places]
        for place, row in zip(places, self.job(rows, *flags, model=model).rows):
            self.assertAlmostEqual(scores[place]["logprob"], row["prompt_logprobs"][-1]["logprob"],
                                   delta=1e-4 + 5 * place / (1 << 24), msg=place)
        peak = max(whole.figures("peak_resident_bytes"))
        small = self.job([score | {"prompt_token_ids": ids[:100]}], *flags, model=model)
        grown = peak - max(small.figures("peak_resident_bytes"))
        self.assertLess(grown, length * 411 * 4 // 2, grown)  # the logits alone would be twice that

    def test_a_sliding_window_needs_the_blocks_of_its_window_only(self):
        length = 1_000_000 if FULL else 100_000
        model = self.stretched("tiny-mistral", {"max_position_embeddings": 1 << 20})
        few = self.answer(model, prompt(length), "--max-model-len", 1 << 20, "--max-num-seqs", 2,
                          "--num-gpu-blocks-override", 64, "--max-num-batched-tokens", 256)
        self.assertEqual(few.rows[0]["usage"], {"prompt_tokens": length, "completion_tokens": 8})
        more = self.answer(model, prompt(length), "--max-model-len", 1 << 20, "--max-num-seqs", 2)
        self.assertEqual(few.bytes, more.bytes)

    def test_a_million_positions_fit_the_memory_plan(self):
        model = self.stretched("tiny-llama3", {"max_position_embeddings": 1 << 20,
                                               "rope_scaling": GOLDEN[1]["config"]["rope_scaling"]})
        length = 131_000 if FULL else 16_000
        result = self.answer(model, prompt(length), "--max-model-len", 1 << 20, "--max-num-seqs", 2)
        self.assertEqual(result.rows[0]["usage"]["prompt_tokens"], length)
        weights, activations, kv, usage, peak = (max(result.figures(name)) for name in (
            "weight_bytes", "activation_bytes", "kv_bytes", "kv_usage_peak", "peak_resident_bytes"))
        self.assertLess(peak, weights + activations + usage * kv + (64 << 20))


if __name__ == "__main__":
    unittest.main(verbosity=2)
