"""What rows may ask of the sampler, and what their results say, in whole runs of the program."""
import json
import math
import re
import shutil
import unittest

from harness import DATA, TINY, Case

TINY3 = str(DATA / "models" / "tiny-llama3")  # end tokens 1 and 3
PROMPT = "The capital of France is"
GREEDY = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "return_token_ids": True}


def output(row):
    return row["outputs"][0]


def ids(row, index=0):
    return row["outputs"][index]["token_ids"]


class Sampling(Case):
    def answers(self, rows, *flags, **options):
        return self.job(rows, *flags, **options).rows

    def one(self, row, *flags, **options):
        return self.answers([row], *flags, **options)[0]

    def test_seeds_in_a_mixed_batch(self):
        seeded = {"id": "A", "prompt": "qz", "seed": 42, "temperature": 0.8, "max_tokens": 12, "return_token_ids": True}
        other = {"id": "B", "prompt": "x", "temperature": 0.8, "max_tokens": 12}
        alone = ids(self.one(seeded))
        for rows, place in (([other, seeded], 1), ([seeded, other], 0), ([other | {"seed": 7}, seeded], 1)):
            for ranks, stages in ((0, 1), (2, 1), (2, 2)):
                self.assertEqual(ids(self.answers(rows, "-pp", stages, ranks=ranks)[place]), alone)
        self.assertNotEqual(ids(self.one(seeded | {"seed": 43})), alone)

    def test_samples(self):
        row = {"prompt": PROMPT, "seed": 42, "temperature": 1.5, "max_tokens": 12, "n": 4, "return_token_ids": True}
        chat = {"custom_id": "c", "url": "/v1/chat/completions",
                "body": {"messages": [{"role": "user", "content": "hi"}], "n": 3, "seed": 1, "max_tokens": 4}}
        first, second, openai = self.answers([row, row, chat])
        samples = [ids(first, index) for index in range(4)]
        self.assertEqual([sample["index"] for sample in first["outputs"]], [0, 1, 2, 3])
        self.assertEqual(len({tuple(sample) for sample in samples}), 4)
        self.assertEqual(first["outputs"], second["outputs"])
        self.assertEqual(first["usage"]["completion_tokens"], sum(map(len, samples)))
        self.assertEqual(ids(self.one(row | {"n": 1})), samples[0])
        body = openai["response"]["body"]
        self.assertEqual([choice["index"] for choice in body["choices"]], [0, 1, 2])
        self.assertEqual(body["usage"]["total_tokens"],
                         body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"])

    def test_several_end_tokens(self):
        row = {"prompt": "x", "temperature": 0, "max_tokens": 5, "logit_bias": {"1": 100}, "return_token_ids": True}
        ended, ignored, stopped = self.answers([row, row | {"ignore_eos": True},
                                                row | {"ignore_eos": True, "stop_token_ids": [1]}], model=TINY3)
        self.assertEqual((output(ended)["text"], ids(ended), output(ended)["finish_reason"], output(ended)["stop_reason"]),
                         ("", [1], "stop", None))
        self.assertEqual((ids(ignored), output(ignored)["finish_reason"]), ([1] * 5, "length"))
        self.assertEqual((ids(stopped), output(stopped)["stop_reason"]), ([1], 1))

    def test_values_at_the_edge(self):
        greedy = ids(self.one(GREEDY))
        same = [{"temperature": t} for t in (1e-4, 1e-30, 1e-40)] + [
            {"temperature": 1, "top_k": 1}, {"temperature": 2, "min_p": 1}, {"temperature": 1, "top_p": 1e-9}]
        for row in self.answers([GREEDY | change for change in same]):
            self.assertEqual((row["error"], ids(row)), (None, greedy))
        free = {"prompt": PROMPT, "seed": 5, "temperature": 1, "max_tokens": 8, "return_token_ids": True}
        rows = self.answers([free, free | {"top_k": 10**12}, free | {"top_k": -1}, free | {"top_k": 411}])
        self.assertEqual(len({tuple(ids(row)) for row in rows}), 1)
        bad = [{"top_p": 0}, {"top_k": -2}, {"logit_bias": {"999999": 1}}, {"logit_bias": {"-1": 1}}, {"n": 2},
               {"allowed_token_ids": []}, {"logprobs": 21}, {"min_tokens": 9}]
        got = self.answers([row for change in bad for row in (GREEDY | change, GREEDY)], expect=3)
        for i, change in enumerate(bad):
            self.assertEqual(got[2 * i]["error"]["field"], next(iter(change)))
            self.assertEqual(ids(got[2 * i + 1]), greedy)

    def test_ids_in_the_padding_of_the_output_layer(self):
        # 2600 ids in the model, 411 in its tokenizer: one bound for every list of ids, the model's.
        model, last = str(DATA / "models" / "tiny-spread8"), 2599
        row = {"prompt_token_ids": [5, last], "temperature": 0, "max_tokens": 2, "return_token_ids": True}
        fields = [({"logit_bias": {str(last): 100}}, {"logit_bias": {str(last + 1): 1}}),
                  ({"allowed_token_ids": [last]}, {"allowed_token_ids": [last + 1]}),
                  ({"trace_decode_token_ids": [last, 2000]}, {"trace_decode_token_ids": [last, last + 1]}),
                  ({"allowed_token_ids": [last], "stop_token_ids": [last]}, {"stop_token_ids": [last + 1]}),
                  ({"logprob_token_ids": [last, 3]}, {"logprob_token_ids": [last + 1]}),
                  ({"prompt_logprob_token_ids": [[last]]}, {"prompt_logprob_token_ids": [[last + 1]]}),
                  ({}, {"prompt_token_ids": [5, last + 1]})]
        rows = self.answers([row | change for pair in fields for change in pair], model=model, expect=3)
        biased, allowed, traced, stopped, scored = (rows[2 * i] for i in range(5))
        self.assertEqual([ids(biased), ids(allowed), ids(traced), ids(stopped)],
                         [[last] * 2, [last] * 2, [last, 2000], [last]])
        self.assertEqual([output(biased)["text"], output(stopped)["stop_reason"]], ["", last])
        entry = next(item for item in output(scored)["logprobs"][0]["top"] if item["id"] == last)
        self.assertEqual(entry["token"], "")
        for i, (_, wrong) in enumerate(fields):
            self.assertIsNone(rows[2 * i]["error"])
            error = rows[2 * i + 1]["error"]
            self.assertEqual(error["field"], list(wrong)[-1])
            self.assertIn(f"{last}, the last id of the vocabulary", error["message"])
        self.assertEqual(self.answers([row], "--allowed-token-ids", last, model=model)[0]["outputs"], allowed["outputs"])
        self.job([row], "--stop-token-ids", last + 1, model=model, expect=2)

    def test_penalties_biases_and_words(self):
        free = self.one(GREEDY)
        first, text = ids(free)[0], output(free)["text"]
        word = re.match(r" ?(\w+)", text).group(1)
        self.assertGreater(len(word), 2)
        banned, biased, only, repeated, penalized = self.answers([
            GREEDY | {"bad_words": [word]}, GREEDY | {"logit_bias": {str(first): -100}},
            GREEDY | {"allowed_token_ids": [70, 71], "ignore_eos": True},
            GREEDY | {"allowed_token_ids": [70, 71], "ignore_eos": True, "frequency_penalty": 2, "max_tokens": 40},
            GREEDY | {"repetition_penalty": 1000.0, "max_tokens": 20, "ignore_eos": True}])
        self.assertIn(word, text)
        self.assertNotIn(word, output(banned)["text"])
        self.assertNotEqual(ids(biased)[0], first)
        self.assertLessEqual(set(ids(only)), {70, 71})
        self.assertEqual(set(ids(repeated)), {70, 71})
        self.assertEqual(len(set(ids(penalized))), 20)

    def test_min_tokens(self):
        row = {"prompt": "x", "temperature": 0, "max_tokens": 9, "logit_bias": {"3": 100}, "return_token_ids": True}
        at_once, later = self.answers([row, row | {"min_tokens": 4}])
        self.assertEqual(ids(at_once), [3])
        self.assertEqual((len(ids(later)), ids(later)[4:]), (5, [3]))
        self.assertNotIn(3, ids(later)[:4])

    def test_repetition_detection(self):
        row = GREEDY | {"allowed_token_ids": [70], "ignore_eos": True, "max_tokens": 30,
                        "repetition_detection": {"max_pattern_size": 3, "min_pattern_size": 2, "min_count": 4}}
        ended = output(self.one(row))
        self.assertEqual((len(ended["token_ids"]), ended["finish_reason"]), (8, "repetition"))

    def test_thinking_budget(self):
        flags = ["--think-start", "<s>", "--think-end", "</s>"]
        row = {"prompt": "<s>Let me think", "temperature": 0, "max_tokens": 12, "min_tokens": 12, "return_token_ids": True,
               "logit_bias": {"1": -100}}  # the model would end its thinking by itself
        free = self.one(row)
        used = free["usage"]["prompt_tokens"] - 1
        limited, over = self.answers([row | {"thinking_token_budget": budget} for budget in (used + 4, used - 1)], *flags)
        self.assertEqual(ids(limited)[:5], ids(free)[:4] + [1])
        self.assertEqual(ids(over)[0], 1)
        refused = self.one(row | {"thinking_token_budget": 6}, expect=3)
        self.assertIn("--think-start", refused["error"]["message"])

    def test_logprobs(self):
        plain, scored, chosen, chat = self.answers([
            GREEDY, GREEDY | {"logprobs": 3}, GREEDY | {"logprob_token_ids": [70, 5]},
            {"custom_id": "c", "url": "/v1/chat/completions",
             "body": {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "logprobs": True,
                      "top_logprobs": 2, "max_tokens": 4}}])
        self.assertEqual({name: value for name, value in output(scored).items() if name != "logprobs"}, output(plain))
        entries = output(scored)["logprobs"]
        self.assertEqual([entry["id"] for entry in entries], ids(plain))
        for entry in entries:  # greedy: the chosen one is the most likely
            self.assertEqual((entry["rank"], entry["top"][0]["id"], len(entry["top"])), (1, entry["id"], 3))
            scores = [top["logprob"] for top in entry["top"]]
            self.assertEqual(scores, sorted(scores, reverse=True))
            self.assertLessEqual(math.fsum(map(math.exp, scores)), 1 + 1e-5)
        self.assertAlmostEqual(sum(entry["logprob"] for entry in entries), output(plain)["cumulative_logprob"], places=4)
        self.assertEqual({tuple(top["id"] for top in entry["top"]) for entry in output(chosen)["logprobs"]}, {(70, 5)})
        content = chat["response"]["body"]["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), chat["response"]["body"]["usage"]["completion_tokens"])
        self.assertEqual({len(entry["top_logprobs"]) for entry in content}, {2})
        self.assertEqual(bytes(content[0]["bytes"]).decode("utf-8"), content[0]["token"])

    def test_the_whole_vocabulary(self):
        row = self.one(GREEDY | {"logprobs": -1, "max_tokens": 2}, "--max-logprobs", "-1")
        for entry in output(row)["logprobs"]:
            self.assertEqual(sorted(top["id"] for top in entry["top"]), list(range(411)))
            self.assertAlmostEqual(math.fsum(math.exp(top["logprob"]) for top in entry["top"]), 1, places=4)

    def test_scores_of_prompts(self):
        base = {"prompt_token_ids": [10, 70, 71, 12], "temperature": 1, "top_k": 1, "max_tokens": 3, "return_token_ids": True}
        scored, only = self.answers([base | {"prompt_logprobs": 5, "logprobs": 5}, base | {"prompt_logprobs": 0, "max_tokens": 0}])
        self.assertIsNone(scored["prompt_logprobs"][0])
        self.assertEqual((len(scored["prompt_logprobs"]), scored["usage"]["prompt_tokens"]), (4, 4))
        for entry in scored["prompt_logprobs"][1:] + output(scored)["logprobs"]:  # before any filter: no score is infinite
            self.assertTrue(all(math.isfinite(score["logprob"]) for score in [entry] + entry["top"]))
            self.assertEqual(len(entry["top"]), 5)
        self.assertEqual((output(only)["text"], ids(only), only["usage"]["completion_tokens"]), ("", [], 0))
        self.assertEqual([entry and entry["logprob"] for entry in only["prompt_logprobs"]],
                         [entry and entry["logprob"] for entry in scored["prompt_logprobs"]])
        bare = {"prompt_token_ids": base["prompt_token_ids"], "return_token_ids": True}
        by_job = self.one(bare, "--max-tokens", 0, "--prompt-logprobs", 0)
        for name in ("outputs", "usage", "error", "prompt_logprobs"):
            self.assertEqual(by_job[name], only[name])
        refused = self.job([bare], "--max-tokens", 0, expect=2)
        self.assertIn("--max-tokens: max_tokens is 0; it must be at least 1, or 0 with prompt_logprobs", refused.stderr)

    def test_scores_of_listed_tokens_are_those_of_the_whole_vocabulary(self):
        prompt = [5 + 7 * i * i % 390 for i in range(50)]
        lists = [[(11 * i + 3 * k) % 411 for k in range(1 + i % 4)] for i in range(29)]  # behind positions 20 to 48
        lists[3][0] = -1
        row = {"prompt_token_ids": prompt, "max_tokens": 0, "prompt_logprobs": -1}
        listed = row | {"prompt_logprob_token_ids": lists, "prompt_logprob_start": 20}
        only = {name: value for name, value in listed.items() if name != "prompt_logprobs"}
        generating = only | {"max_tokens": 3, "temperature": 1, "n": 2, "seed": 1}
        rows = [row, listed, only, generating]
        flags = ["--max-logprobs", "-1", "--max-num-batched-tokens", "16", "--max-num-seqs", "4"]
        whole, both, alone, beside = self.answers(rows, *flags)
        self.assertEqual(both["prompt_logprobs"], whole["prompt_logprobs"])
        expected = []
        for position, list_of in enumerate(lists, 21):
            by_id = {entry["id"]: entry["logprob"] for entry in whole["prompt_logprobs"][position]["top"]}
            expected.append([by_id.get(token) for token in list_of] + [None] * (4 - len(list_of)))
        self.assertEqual(sum(value is None for values in expected for value in values), 1 + sum(4 - len(l) for l in lists))
        for answer in (both, alone, beside):
            self.assertEqual(answer["prompt_token_id_logprobs"], expected)
        self.assertNotIn("prompt_logprobs", alone)
        self.assertEqual(len(beside["outputs"]), 2)
        for layout in (["-tp", "2"], ["-pp", "2"]):
            spread = self.answers(rows, *flags, *layout, "--dtype", "float", ranks=2)
            single = self.answers(rows, *flags, "--dtype", "float")
            for got, want in zip(spread, single):
                for name in ("prompt_token_id_logprobs", "prompt_logprobs"):
                    self.assertEqual(name in got, name in want)
                for a, b in zip(got.get("prompt_token_id_logprobs", []), want.get("prompt_token_id_logprobs", [])):
                    for x, y in zip(a, b):
                        self.assertTrue(x == y or abs(x - y) < 1e-4, (layout, x, y))
        short = self.one(only | {"prompt_logprob_token_ids": lists[:-1]}, expect=3)
        self.assertIn("prompt_logprob_token_ids has 28 rows; the prompt has 50 tokens, 29 of them behind position 20",
                      short["error"]["message"])

    def test_a_replayed_trace_has_the_scores_of_the_prompt_it_would_be(self):
        trace = [70, 71, 5, 90, 3, 12]
        replayed = self.one({"prompt_token_ids": [10, 11, 12], "trace_decode_token_ids": trace, "ignore_eos": True,
                             "logprobs": 0, "return_token_ids": True})
        whole = self.one({"prompt_token_ids": [10, 11, 12] + trace, "max_tokens": 0, "prompt_logprobs": 0})
        self.assertEqual(ids(replayed), trace)
        self.assertEqual([entry["logprob"] for entry in output(replayed)["logprobs"]],
                         [entry["logprob"] for entry in whole["prompt_logprobs"][3:]])

    def test_echoed_completions(self):
        body = {"prompt": "ab c", "echo": True, "logprobs": 1, "temperature": 0, "max_tokens": 2}
        rows = [{"custom_id": str(limit), "url": "/v1/completions", "body": body | {"max_tokens": limit}} for limit in (2, 0)]
        for row in self.answers(rows):
            choice = row["response"]["body"]["choices"][0]
            logprobs = choice["logprobs"]
            self.assertTrue(choice["text"].startswith("ab c"))
            self.assertEqual("".join(logprobs["tokens"]), choice["text"])
            self.assertEqual((logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]), (None, None))
            for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
                self.assertTrue(choice["text"][offset:].startswith(token))

    def test_prompts_that_are_too_long(self):
        flags = ["--max-model-len", "32", "--max-tokens", "4", "--temperature", "0"]
        rows = [{"id": "long", "prompt_token_ids": list(range(10, 60))}, {"id": "short", "prompt_token_ids": [10, 11]}]
        got = self.answers(rows, *flags, expect=3)
        self.assertEqual([bool(row["error"]) for row in got], [True, False])
        left = self.answers(rows, *flags, "--overlong", "truncate-left")
        same = self.one({"prompt_token_ids": list(range(32, 60))}, *flags)
        self.assertEqual(left[0]["outputs"], same["outputs"])
        self.assertEqual(left[0]["usage"]["prompt_tokens"], 28)
        cut = self.one(rows[0] | {"truncate_prompt_tokens": 28, "truncation_side": "right"}, *flags)
        self.assertEqual(self.answers(rows, *flags, "--overlong", "truncate-right")[0]["outputs"], cut["outputs"])
        for ranks in (0, 2):
            result = self.job(rows, *flags, "--overlong", "skip", ranks=ranks)
            skipped, answered = result.rows
            self.assertEqual((skipped["outputs"], skipped["error"], answered["error"]), ([], None, None))
            self.assertIn("prompt has 50 tokens", skipped["skipped"]["message"])
            self.assertIn("1 rows were skipped", result.stderr)

    def test_defaults_of_the_job_and_the_model(self):
        job = self.write("job.yaml", "sampling:\n  logit_bias: {70: 100}\n  max_tokens: 3\n  return_token_ids: true\n"
                                     "  temperature: 0\n  ignore_eos: true\n")
        self.assertEqual(ids(self.one({"prompt": "x"}, "--seed", "0", job)), [70] * 3)
        self.assertEqual(len(ids(self.one({"prompt": "x", "max_tokens": 2}, "--seed", "0", job))), 2)
        model = self.dir / "penalized"
        shutil.copytree(TINY, model)
        (model / "generation_config.json").write_text('{"eos_token_id": 3, "repetition_penalty": 1000.0}')
        row = GREEDY | {"ignore_eos": True, "max_tokens": 20}
        self.assertEqual(len(set(ids(self.one(row, model=str(model))))), 20)
        self.assertEqual(ids(self.one(row, "--generation-config", "none", model=str(model))), ids(self.one(row)))

    def test_results_do_not_depend_on_the_batch(self):
        rows = [GREEDY | {"logprobs": 2, "prompt_logprobs": 1}, GREEDY | {"temperature": 1, "n": 3, "seed": 3, "logprobs": 0},
                GREEDY | {"bad_words": ["Paris"], "presence_penalty": 1}, GREEDY | {"min_tokens": 6, "repetition_penalty": 1.3}]
        first = self.job(rows * 4).bytes
        for flags, ranks in (([], 2), (["--max-num-seqs", "3"], 0), (["--max-num-batched-tokens", "64", "--max-num-seqs", "8"], 0)):
            self.assertEqual(self.job(rows * 4, *flags, ranks=ranks).bytes, first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
