"""Every input row has one output row, in order; a bad row costs itself."""
import gzip
import json
import unittest

from harness import DATA, Case, tokenmill

CASES = DATA / "cases"
FAST = ["--max-tokens", "3", "--temperature", "0"]


class Rows(Case):
    def test_line_framing(self):  # byte-order mark, CR LF, blank lines, no newline at the end
        first = self.job(CASES / "bom_crlf.jsonl", *FAST)
        self.assertEqual([row["id"] for row in first.rows], ["a", "b", "c"])
        self.assertTrue(first.bytes.endswith(b"\n"))
        for ranks in (1, 2, 4):
            self.assertEqual(self.job(CASES / "bom_crlf.jsonl", *FAST, ranks=ranks).bytes, first.bytes)

    def test_files_without_rows(self):
        for content in (b"", b"\n \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"):
            for ranks in (0, 2):
                self.assertEqual(self.job(self.write("empty.jsonl", content), ranks=ranks).bytes, b"")

    def test_unpaired_surrogates(self):
        result = self.job(CASES / "surrogate.jsonl", *FAST, expect=3)
        bad = {row["id"]: bool(row["error"]) for row in result.rows}
        self.assertEqual(bad, {"pair": False, "lone-high": True, "lone-low": True, "reversed": True, "high-at-end": True,
                               "high-high": True, "plain": False})

    def test_exact_numbers(self):
        result = self.job(CASES / "bigint.jsonl", *FAST, expect=3)
        ids = [line.split('"id":')[1].split(',"row"')[0] for line in result.bytes.decode().splitlines()]
        self.assertEqual(ids, ["9007199254740993", "18446744073709551615", "18446744073709551617", "-9223372036854775808",
                               '"0123"', "1", "2", "3"])
        self.assertEqual([bool(row["error"]) for row in result.rows], [False] * 6 + [True] * 2)

    def test_repeated_keys(self):
        result = self.job(CASES / "dupkeys.jsonl", *FAST)
        self.assertEqual([row["id"] for row in result.rows], ["d1", "d3", "d4", "d5"])

    def test_gzip_of_several_members(self):
        result = self.job(CASES / "members.jsonl.gz", *FAST, ranks=2)
        self.assertEqual([row["id"] for row in result.rows], ["g1", "g2", "g3"])
        plain = self.write("plain.jsonl", gzip.decompress((CASES / "members.jsonl.gz").read_bytes()))
        self.assertEqual(self.job(plain, *FAST).bytes, result.bytes)

    def test_the_character_zero(self):
        result = self.job(CASES / "nul.jsonl", *FAST)
        self.assertEqual(len(result.rows), 5)
        self.assertIn("\0", result.rows[3]["id"])
        self.assertIn(b"\\u0000", result.bytes)

    def test_bad_records_among_good_ones(self):
        flags = [*FAST, "--max-model-len", "256"]
        first = self.job(CASES / "mixed_records.jsonl", *flags, expect=3)
        rows = first.rows
        self.assertEqual([bool(row["error"]) for row in rows], [False] + [True] * 7 + [False])
        self.assertEqual([row["row"] for row in rows], list(range(9)))
        for row in rows[1:8]:
            self.assertIn(f"mixed_records.jsonl:{row['row'] + 1}: ", row["error"]["message"])
            self.assertEqual((row["outputs"], row["usage"]), ([], None))
        self.assertIn("256", rows[4]["error"]["message"])
        lines = (CASES / "mixed_records.jsonl").read_bytes().splitlines(keepends=True)
        alone = self.job(self.write("good.jsonl", lines[0] + lines[8]), *flags).rows
        self.assertEqual([row["outputs"] for row in alone], [rows[0]["outputs"], rows[8]["outputs"]])
        self.assertRegex(first.stderr, r"2 of 9 rows answered, 7 with errors")
        for ranks in (1, 2, 4):
            self.assertEqual(self.job(CASES / "mixed_records.jsonl", *flags, ranks=ranks, expect=3).bytes, first.bytes)
        self.job(CASES / "mixed_records.jsonl", *flags, "--max-row-errors", "7")
        self.job(CASES / "mixed_records.jsonl", *flags, "--max-row-errors", "6", expect=3)
        self.job(CASES / "mixed_records.jsonl", *flags, "--max-row-errors", "80%")

    def test_an_empty_prompt_runs_where_the_tokenizer_adds_a_start_token(self):
        model = str(DATA / "models" / "tiny-llama3")
        row = self.job([{"id": 1, "prompt": "", "max_tokens": 2, "ignore_eos": True}], model=model).rows[0]
        self.assertEqual((row["error"], row["usage"]), (None, {"prompt_tokens": 1, "completion_tokens": 2}))
        row = self.job([{"id": 1, "prompt": ""}], expect=3).rows[0]
        self.assertEqual(row["error"]["field"], "prompt")

    def test_chats_that_the_template_refuses(self):
        result = self.job(CASES / "chat_records.jsonl", *FAST, "--chat-template", CASES / "chat.jinja", expect=3)
        errors = [row["error"] and row["error"]["message"] for row in result.rows]
        self.assertEqual([bool(error) for error in errors], [False, False, True, False])
        self.assertIn("unknown role: wizard", errors[2])

    def test_stop_text(self):
        row = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 12}
        free = self.job([row]).rows[0]["outputs"][0]["text"]
        self.assertGreater(len(free.strip()), 3)
        stop = free[2:4]
        cut, kept, unmet = self.job([row | {"stop": stop}, row | {"stop": [stop], "include_stop_str_in_output": True},
                                     row | {"stop": "\u2603"}]).rows
        self.assertEqual(cut["outputs"][0]["text"], free[:free.index(stop)])
        self.assertEqual((cut["outputs"][0]["finish_reason"], cut["outputs"][0]["stop_reason"]), ("stop", stop))
        self.assertEqual(kept["outputs"][0]["text"], free[:free.index(stop) + 2])
        self.assertEqual(unmet["outputs"][0]["text"], free)

    def test_openai_rows(self):
        def chat(name, **body):
            return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
                    "body": {"model": "any", "messages": [{"role": "user", "content": "What is two plus three?"}],
                             "temperature": 0, "max_tokens": 8, **body}}
        rows = [chat("a"), {"custom_id": "b", "method": "POST", "url": "/v1/completions",
                            "body": {"prompt": "The capital of France is", "temperature": 0}},
                chat("c", response_format={"type": "json_object"}), chat("a"), chat("e", n=2), {"id": "native", "prompt": "x"}]
        first = self.job(rows, expect=3)
        got = first.rows
        self.assertEqual([row.get("custom_id") for row in got], ["a", "b", "c", "a", "e", None])
        self.assertEqual([row["response"]["status_code"] for row in got[:5]], [200, 200, 400, 400, 400])
        message = got[0]["response"]["body"]["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        self.assertIn("five", message["content"])
        self.assertEqual(got[0]["response"]["body"]["created"], 0)
        self.assertEqual(got[1]["response"]["body"]["usage"]["completion_tokens"] <= 16, True)
        self.assertEqual(got[2]["response"]["body"]["error"]["param"], "response_format")
        self.assertIn("unique", got[3]["response"]["body"]["error"]["message"])
        self.assertEqual(got[5]["id"], "native")
        self.assertEqual(self.job(rows, ranks=2, expect=3).bytes.replace(b"in2.jsonl", b"in1.jsonl"), first.bytes)

    def test_repeated_native_ids_are_a_warning(self):
        rows = [{"id": 7, "prompt": "x", "temperature": 1}] * 2 + [{"id": 8, "prompt": "x", "temperature": 1}]
        result = self.job(rows)
        self.assertEqual(result.rows[0]["outputs"], result.rows[1]["outputs"])
        self.assertIn("1 rows have the id of an earlier row", result.stderr)

    def test_oversized_records(self):
        rows = [{"id": 1, "prompt": "x"}, {"id": 2, "prompt": "y" * 5000}, {"id": 3, "prompt": "z"}]
        got = self.job(rows, *FAST, "--max-record-bytes", "4K", expect=3).rows
        self.assertEqual([bool(row["error"]) for row in got], [False, True, False])
        self.assertEqual(got[1]["error"]["code"], "record_too_large")
        self.assertEqual([row["id"] for row in got], [1, 2, 3])

    def test_oversized_records_keep_their_ids_and_shapes(self):
        rows = [{"custom_id": f"c{size}", "method": "POST", "url": "/v1/chat/completions",
                 "body": {"messages": [{"role": "user", "content": "y" * size}]}} for size in (5000, 200_000)]
        rows += [{"id": size, "prompt": "y" * size} for size in (5000, 200_000)]
        got = self.job(rows, *FAST, "--max-record-bytes", "4K", ranks=2, expect=3).rows
        self.assertEqual([row.get("custom_id") for row in got], ["c5000", "c200000", None, None])
        self.assertEqual([row["response"]["body"]["error"]["code"] for row in got[:2]], ["record_too_large"] * 2)
        self.assertEqual([row["id"] for row in got[2:]], [5000, 200_000])

    def test_row_metrics(self):
        rows = [{"id": i, "prompt": "x", "max_tokens": 3, "ignore_eos": True} for i in range(9)] + [{"id": 9, "prompt": 3}]
        result = self.job(rows, "--row-metrics", ranks=2, expect=3)
        lines = [json.loads(line) for line in (result.output / "row_metrics.jsonl").read_text().splitlines()]
        self.assertEqual(sorted(line["row"] for line in lines), list(range(9)))  # the bad row took no time
        for line in lines:
            self.assertEqual((line["prompt_tokens"], line["completion_tokens"]), (1, 3))
            self.assertTrue(0 <= line["queue_s"] <= line["ttft_s"] <= line["e2e_s"])
            self.assertIn(line["rank"], (0, 1))
        self.assertFalse((self.job(rows, expect=3).output / "row_metrics.jsonl").exists())

    def test_metrics_files_of_a_run(self):
        rows = [{"id": i, "prompt": "The capital of", "max_tokens": 4, "ignore_eos": True} for i in range(30)]
        prom, steps = self.dir / "run.prom", self.dir / "steps.jsonl"
        result = self.job(rows, "--metrics-file", prom, "--iteration-log", steps, ranks=2)
        samples = dict(line.rsplit(" ", 1) for line in prom.read_text().splitlines() if not line.startswith("#"))
        label = 'model_name="tiny-llama"'
        self.assertEqual(samples[f"tokenmill:generation_tokens_total{{{label}}}"], "120")
        self.assertEqual(samples[f"tokenmill:e2e_request_latency_seconds_count{{{label}}}"], "30")
        self.assertEqual(samples[f'tokenmill:request_success_total{{{label},finished_reason="length"}}'], "30")
        self.assertEqual(samples[f'tokenmill:inter_token_latency_seconds_bucket{{{label},le="+Inf"}}'], "90")
        logs = [[json.loads(line) for line in (self.dir / f"steps.jsonl.{rank}").read_text().splitlines()]
                for rank in range(2)]
        self.assertEqual(sum(step["logits_rows"] for log in logs for step in log), 120)
        self.assertEqual([log[0]["step"] for log in logs if log], [1] * sum(map(bool, logs)))
        text = (result.output / "run.yaml").read_text()
        self.assertIn("ttft_s: {count: 30, ", text)
        total, *replicas = result.figures("device_s")
        self.assertAlmostEqual(total, sum(replicas), places=4)

    def test_many_inputs_in_order(self):
        for name in ("b.jsonl", "a.jsonl", "c.jsonl"):
            self.write(name, [{"id": name, "prompt": "x"}])
        result = tokenmill("run", "--model", DATA / "models" / "tiny-llama", "--output", self.dir / "o", *FAST,
                           "--input", self.dir / "*.jsonl")
        result.output = self.dir / "o"
        self.assertEqual([row["id"] for row in result.rows], ["a.jsonl", "b.jsonl", "c.jsonl"])

    def test_outputs_can_be_concatenated(self):
        two = b"".join(self.job([{"id": i, "prompt": "x"}], *FAST).bytes for i in range(2))
        self.assertEqual([json.loads(line)["id"] for line in two.splitlines()], [0, 1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
