"""Every field of vLLM's SamplingParams, one entry each: what it does to an answer, values that are accepted, and values that
are errors of their rows under its name, in native rows and in bodies of /v1/completions."""
import json
import shutil
import unittest

from harness import TINY, Case

GREEDY = {"prompt": "The capital of France is",  # 7 tokens
           "temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}
GREEDY_IDS = [333, 325, 76, 86, 17, 1, 2, 88]  # " P", "ar", "i", "s", ".", "</s>", "<|im_start|>", "u"
SAMPLED = {"temperature": 2, "seed": 1}
FEW = {"allowed_token_ids": list(range(70, 80)), "max_tokens": 20}
ENDS = {"ignore_eos": False, "logit_bias": {"3": 100}}  # the end token at once
THINKS = {"prompt": "<s>Let me think", "logit_bias": {"1": -100}}
FORM = "ask for the form in the prompt"
SEVERAL = "for several answers set n and a temperature"


def first(row):
    return row["outputs"][0]


def ids(row):
    return first(row)["token_ids"]


def text(row):
    return first(row)["text"]


def same(base, row):
    return row["outputs"] == base["outputs"]


class Field:
    """changes: what a row says for `effect`, which takes the answer to `base` (the changes without the field) and the row's.
    refused: values, or (value, other fields, a part of the message)."""

    def __init__(self, name, accepted=(), refused=(), changes=None, effect=None, base=None, bodies=True):
        self.name, self.accepted, self.refused, self.changes, self.effect = name, accepted, refused, changes or {}, effect
        self.base = {other: value for other, value in self.changes.items() if other != name} if base is None else base
        self.bodies = bodies  # a completion's body may say it

    def has_effect(self, base, row):
        try:
            return self.effect(base, row)
        except (KeyError, TypeError):  # what the field adds to the answer is not there
            return False

    def refusals(self):
        for entry in self.refused:
            value, others, message = entry if isinstance(entry, tuple) else (entry, {}, self.name)
            yield {self.name: value} | others, message


FIELDS = [
    Field("n", [1], [0, 16385, 1.5, "2", (2, {}, "it must be 1 when temperature is 0")],
          SAMPLED | {"n": 3}, lambda _, row: len(row["outputs"]) == 3),
    Field("temperature", [0, 1e-40, 0.001, 2], [-0.1, 2.1, "hot"], SAMPLED, lambda base, row: ids(row) != ids(base)),
    Field("top_p", [1, 0.5], [0, -1, 1.1], SAMPLED | {"top_p": 1e-9}, lambda _, row: ids(row) == GREEDY_IDS),
    Field("top_k", [0, -1, 1, 10**12], [-2, 1.5], SAMPLED | {"top_k": 1}, lambda _, row: ids(row) == GREEDY_IDS),
    Field("min_p", [0, 1], [-0.1, 1.1], SAMPLED | {"min_p": 1}, lambda _, row: ids(row) == GREEDY_IDS),
    Field("presence_penalty", [-2, 2], [-2.1, 2.1], FEW | {"presence_penalty": 2, "max_tokens": 5},
          lambda _, row: len(set(ids(row))) > 1),
    Field("frequency_penalty", [-2, 2], [-2.1, 2.1], FEW | {"frequency_penalty": 2}, lambda _, row: len(set(ids(row))) > 4),
    Field("repetition_penalty", [0.01, 1, 5], [0, -1], {"repetition_penalty": 1000.0, "max_tokens": 20},
          lambda _, row: len(set(ids(row))) == 20),
    Field("seed", [0, -1, 2**63 - 1], [1.5, "x", 2**64], SAMPLED | {"seed": 2}, lambda base, row: ids(row) != ids(base), base=SAMPLED),
    Field("stop", ["x", ["a", "b"], []], ["", ["a", ""], 7, ("x", {"detokenize": False}, "use stop_token_ids")],
          {"stop": "ris"}, lambda _, row: (text(row), first(row)["stop_reason"]) == (" Pa", "ris")),
    Field("stop_token_ids", [[], [410]], [[411], [-1], ["a"], [1.5]],
          {"stop_token_ids": [86, 86]}, lambda _, row: (ids(row)[-1], first(row)["stop_reason"]) == (86, 86)),
    Field("bad_words", [[], ["x y"]], [[""], [7], [str(i) for i in range(129)]],
          {"bad_words": ["Paris"]}, lambda _, row: "Paris" not in text(row)),
    Field("include_stop_str_in_output", [False], [1, "yes"], {"stop": "ris", "include_stop_str_in_output": True},
          lambda _, row: text(row) == " Paris"),
    Field("ignore_eos", [False], [1, "yes"], ENDS | {"ignore_eos": True}, lambda _, row: ids(row) == [3] * 8, base=ENDS),
    Field("max_tokens", [1, 8], [0, -1, 3.5], {"max_tokens": 3}, lambda _, row: ids(row) == GREEDY_IDS[:3]),
    Field("min_tokens", [0, 8], [-1, 9, 1.5], ENDS | {"min_tokens": 4},
          lambda _, row: 3 not in ids(row)[:4] and ids(row)[4:] == [3]),
    Field("logprobs", [0, 20], [-2, 21, (-1, {}, "--max-logprobs")], {"logprobs": 2},
          lambda _, row: [len(entry["top"]) for entry in first(row)["logprobs"]] == [2] * 8),
    Field("prompt_logprobs", [0, 20], [-2, 21, (-1, {}, "--max-logprobs")], {"prompt_logprobs": 1},
          lambda _, row: [entry and len(entry["top"]) for entry in row["prompt_logprobs"]] == [None] + [1] * 6),
    Field("logprob_token_ids", [[1]], [[411], [-1], list(range(129)), ([1, 2], {"logprobs": 1}, "logprobs is 1")],
          {"logprob_token_ids": [70, 5]},
          lambda _, row: {tuple(top["id"] for top in entry["top"]) for entry in first(row)["logprobs"]} == {(70, 5)}),
    Field("prompt_logprob_token_ids", [[[5, -1], [6]] * 3], [[5], [[411]] * 6, [[-2]] * 6, [list(range(21))] * 6, [[5]] * 5],
          {"prompt_logprob_token_ids": [[5, 6]] * 6},
          lambda _, row: [len(scores) for scores in row["prompt_token_id_logprobs"]] == [2] * 6, bodies=False),
    Field("prompt_logprob_start", [], [(-1, {"prompt_logprob_token_ids": [[5]] * 6}, "at least 0"), (1, {}, "it needs")],
          {"prompt_logprob_token_ids": [[5]] * 2, "prompt_logprob_start": 4},
          lambda _, row: len(row["prompt_token_id_logprobs"]) == 2, base={}, bodies=False),
    Field("flat_logprobs", [False], [1, "yes"], {"logprobs": 1, "flat_logprobs": True},
          lambda _, row: first(row)["logprobs"]["token_ids"][::2] == GREEDY_IDS, bodies=False),
    Field("detokenize", [True], [1, "yes"], {"detokenize": False}, lambda _, row: (text(row), ids(row)) == ("", GREEDY_IDS)),
    Field("skip_special_tokens", [True], [1, "yes"], {"skip_special_tokens": False},
          lambda _, row: text(row) == " Paris.</s><|im_start|>u"),
    Field("spaces_between_special_tokens", [True, False], [1, "yes"]),  # effect: a test of its own below
    Field("output_kind", ["CUMULATIVE", "DELTA", 2], ["ALL", 3], {"output_kind": "FINAL_ONLY"}, same),
    Field("stream_interval", [1, 50], [0, 1.5], {"stream_interval": 3}, same),
    Field("logit_bias", [{}, {"7": -1000}], [{"x": 1}, {"411": 1}, {"-1": 1}, {"7": "much"}], {"logit_bias": {"70": 100}},
          lambda _, row: ids(row) == [70] * 8),
    Field("allowed_token_ids", [[5]], [[], [411], [-1]], {"allowed_token_ids": [70, 71]},
          lambda _, row: set(ids(row)) <= {70, 71}),
    Field("structured_outputs", [None], [({"regex": "a"}, {}, FORM), ({"json": {}}, {}, FORM), ({}, {}, FORM)]),
    Field("extra_args", [{"a": -2**63}, {"a": 2**64 - 1}], [{"a": 2**64}, 7], {"extra_args": {"a": 1}}, same),
    Field("thinking_token_budget", [-1, 0, 5], [-2, 1.5, True], THINKS | {"thinking_token_budget": 0},
          lambda _, row: ids(row)[0] == 1),
    Field("repetition_detection", [{}, {"max_pattern_size": 2, "min_count": 2}],
          [{"max_pattern_size": -1}, {"max_pattern_size": 1, "min_pattern_size": 2, "min_count": 2},
           {"max_pattern_size": 1, "min_count": 1}, 7],
          {"allowed_token_ids": [70], "repetition_detection": {"max_pattern_size": 1, "min_count": 4}},
          lambda _, row: (ids(row), first(row)["finish_reason"]) == ([70] * 4, "repetition")),
    Field("skip_reading_prefix_cache", [True, False], [1, "yes"]),  # effect: a test of its own below
    Field("watermarking", [False, None], [(True, {}, "only false: give that or leave it out"), 1]),
    Field("routed_experts_prompt_start", [0], [(1, {}, "only 0: give that or leave it out"), -1]),
    Field("trace_decode_token_ids", [[5, 6]],
          [[], [411], [-1], ([5], {"n": 2, "temperature": 1}, "n above 1"), ([5], {"bad_words": ["x"]}, "bad_words"),
           ([5], {"prompt_logprobs": 1}, "prompt_logprobs")],
          {"trace_decode_token_ids": [70, 71, 5]}, lambda _, row: ids(row)[:3] == [70, 71, 5]),
    Field("skip_clone", [True, False], [1], {"skip_clone": True}, same),
]
# No longer part of SamplingParams, or of its class for beam search: known by name, so that no row loses its meaning silently.
OTHERS = [
    Field("best_of", [1], [(2, {}, SEVERAL)]), Field("use_beam_search", [False], [(True, {}, SEVERAL)]),
    Field("beam_width", [1], [(4, {}, SEVERAL)]), Field("length_penalty", [1.0], [0.5]),
    Field("early_stopping", [False], [True]), Field("guided_decoding", [None], [({"regex": "a"}, {}, FORM)]),
]


class SamplingTable(Case):
    def answers(self, rows, expect=0):
        flags = ["--think-start", "<s>", "--think-end", "</s>", "--max-model-len", "128"]
        return self.job(rows, *flags, expect=expect).rows

    def test_each_field_has_its_effect(self):
        fields = [field for field in FIELDS if field.effect]
        self.assertEqual([field.name for field in FIELDS if not field.effect],
                         ["spaces_between_special_tokens", "structured_outputs", "skip_reading_prefix_cache", "watermarking",
                          "routed_experts_prompt_start"])
        rows = [GREEDY | changes for field in fields for changes in (field.base, field.changes)]
        answers = self.answers(rows)
        for i, field in enumerate(fields):
            base, changed = answers[2 * i:2 * i + 2]
            with self.subTest(field.name):
                self.assertTrue(field.has_effect(base, changed), (base, changed))
                self.assertEqual(field.has_effect(base, base), field.effect is same, base)

    def check_values(self, fields, wrap, error_of):
        good = [(field.name, {field.name: value}) for field in fields for value in field.accepted]
        bad = [(field.name, *refusal) for field in fields for refusal in field.refusals()]
        answers = self.answers([wrap(i, GREEDY | change) for i, (_, change) in enumerate(good)] +
                               [wrap(i, GREEDY | change) for i, (_, change, _) in enumerate(bad, len(good))], expect=3)
        for (name, change), answer in zip(good, answers):
            self.assertIsNone(error_of(answer), (name, change))
        for (name, change, message), answer in zip(bad, answers[len(good):]):
            with self.subTest(name, **change):
                field, text_of_error = error_of(answer)
                self.assertIn(name, text_of_error)
                self.assertIn(message, text_of_error)
                self.assertIn(field, change)
                self.assertTrue(field == name or message != name, (field, text_of_error))

    def test_values_of_native_rows(self):
        def error_of(answer):
            error = answer["error"]
            return error and (error["field"], error["message"])
        self.check_values(FIELDS + OTHERS, lambda i, row: row | {"id": i}, error_of)

    def test_values_of_bodies(self):
        def error_of(answer):
            error = answer["response"]["body"].get("error")
            return error and (error["param"], error["message"])
        listed = [Field(name, [None], [([[5]] if name.endswith("ids") else 1 if name.endswith("start") else True, {},
                                        "a native row takes it")]) for name in
                  ("prompt_logprob_token_ids", "prompt_logprob_start", "flat_logprobs")]
        self.check_values([field for field in FIELDS if field.bodies] + listed + OTHERS,
                          lambda i, row: {"custom_id": str(i), "url": "/v1/completions", "body": row}, error_of)

    def test_spaces_between_special_tokens(self):
        model = self.dir / "joined"
        shutil.copytree(TINY, model)
        tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
        (model / "tokenizer.json").write_text(json.dumps(tokenizer | {"decoder": None}), encoding="utf-8")
        shown = GREEDY | {"skip_special_tokens": False}
        spaced, joined, skipped = self.job([shown, shown | {"spaces_between_special_tokens": False},
                                            GREEDY | {"spaces_between_special_tokens": False}], model=str(model)).rows
        self.assertEqual(ids(spaced)[4:], [17, 1, 2, 88])
        self.assertTrue(text(spaced).endswith(". </s> <|im_start|> u"))
        self.assertTrue(text(joined).endswith(". </s><|im_start|> u"))
        self.assertTrue(text(skipped).endswith(". u"))

    def test_skip_reading_prefix_cache(self):
        rows = [{"prompt_token_ids": list(range(10, 58)), "max_tokens": 2} for _ in range(3)]
        self.assertGreaterEqual(self.job(rows).figures("prefix_cache_hits")[0], 2 * 32)
        skipping = [row | {"skip_reading_prefix_cache": True} for row in rows]
        self.assertEqual(self.job(skipping).figures("prefix_cache_hits")[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
