"""validate: what a run would refuse, what it would compute where and which rows would fail, without launcher or device."""
import gzip
import json
import unittest

from harness import DATA, TINY, Case, environment, tokenmill

SPREAD = DATA / "models" / "tiny-spread8"  # 24 query heads, 8 key/value heads, 5 layers
ROWS = [
    {"id": "fine", "prompt": "The sun", "max_tokens": 4, "temperature": 0},
    {"id": "hot", "prompt": "x", "temperature": 9},
    {"id": "long", "prompt": "word " * 400},
    {"id": "outside", "prompt_token_ids": [5, 10 ** 6], "max_tokens": 2},
    {"id": "masks", "prompt": "x", "min_tokens": 2, "stop_token_ids": list(range(300)), "max_tokens": 3},
    {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "y", "max_tokens": 2}},
    {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "z", "max_tokens": 2}},
    {"id": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0},
]


def messages_of(rows):
    """The error messages of a run's results, of both shapes."""
    found = []
    for row in rows:
        if row.get("error"):
            found.append(row["error"]["message"])
        elif (row.get("response") or {}).get("status_code", 200) != 200:
            found.append(row["response"]["body"]["error"]["message"])
    return found


class Validate(Case):
    def validate(self, rows, *flags, model=TINY, expect=0, env=None):
        path = rows if not isinstance(rows, list) else self.write("in.jsonl", rows)
        result = tokenmill("validate", "--model", model, "--input", path, "--output", self.dir / "o", *flags, env=env)
        self.assertEqual(result.code, expect, result.stderr + result.stdout)
        self.assertFalse((self.dir / "o").exists())
        return result

    def test_rows_fail_as_they_do_in_a_run(self):
        path = self.write("rows.jsonl", b"\n{\n" + "".join(json.dumps(row) + "\n" for row in ROWS).encode())
        flags = ("--max-model-len", 128, "--max-row-errors", "90%")
        run = self.job(path, *flags)
        messages = messages_of(run.rows)
        self.assertEqual(len(messages), 6)
        result = self.validate(path, *flags)
        self.assertIn("rows: 9 in all, 3 would run, 6 with errors, 0 skipped\n  " + "\n  ".join(messages) + "\n", result.stdout)
        self.assertEqual(result.stderr, "")
        packed = self.dir / "rows.jsonl.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        self.assertEqual(self.validate(packed, *flags).stdout, result.stdout.replace("rows.jsonl:", "rows.jsonl.gz:"))
        strict = self.validate(path, "--max-model-len", 128, expect=3)
        self.assertIn("the job would exit with 3", strict.stdout)
        many = self.validate([{"prompt": 1}] * 25, expect=3)
        self.assertEqual(many.stdout.count("in.jsonl:"), 10)
        self.assertIn("and 15 more", many.stdout)
        fine = self.validate([{"prompt": "The sun", "max_tokens": 1 + i % 3, "n": 1 + i % 2} for i in range(600)])
        self.assertIn("600 would run, 0 with errors", fine.stdout)
        self.assertIn(f"at most {sum((1 + i % 3) * (1 + i % 2) for i in range(600))} to generate".replace("1800", "1,800"), fine.stdout)

    def test_the_layout_of_a_cluster(self):
        text = self.validate(ROWS[:1], "-tp", 2, "-pp", 2, "--ranks", 8, "--ranks-per-node", 4, "--dtype", "float",
                             "--threads", 1, model=SPREAD).stdout
        self.assertIn("8 ranks on 2 nodes, 2 replicas of 2 stages of 2 ranks", text)
        for ranks, local, stage in (("0-1, 4-5", "0-1", 0), ("2-3, 6-7", "2-3", 1)):
            self.assertRegex(text, rf"\n  ranks {ranks}: nodes 0-1, local ranks {local}, NUMA domains? \S.*, CPUs? \S.*, 1 thread, cpu; "
                                   rf"dp 0-1, pp {stage}, tp 0-1: layers? \d\S*\n")
        self.assertEqual(text.count(": weights "), 4)
        self.assertNotIn("note:", text)
        crossing = self.validate(ROWS[:1], "-tp", 2, "--ranks", 4, "--ranks-per-node", 3, model=SPREAD).stdout
        self.assertIn("note: 1 of 2 tensor-parallel groups cross nodes", crossing)
        few = self.validate(ROWS[:1], "-tp", 8, "-pp", 3, model=SPREAD).stdout  # as many ranks as one replica needs
        self.assertIn("24 ranks on 1 node, 1 replica of 3 stages of 8 ranks", few)

    def test_memory_is_that_of_the_run(self):
        flags = ("--dtype", "float", "--max-model-len", 64, "--threads", 1, "--kv-cache-memory-bytes", "4M")
        run = self.job(ROWS[:1], *flags, "-tp", 2, ranks=2, model=SPREAD)
        planned = self.validate(ROWS[:1], *flags, "-tp", 2, model=SPREAD)
        line = next(line for line in planned.stdout.splitlines() if line.startswith("  rank 0: weights "))
        self.assertIn(line.removeprefix("  rank 0: "), run.stderr)
        self.assertRegex(line, r"shared windows 3\.\d+ MiB, KV")
        stages = self.validate(ROWS[:1], *flags, "-pp", 2, model=SPREAD).stdout
        self.assertIn("(layers by their parameters; a run measures what they cost)", stages)

    def test_refusals_are_those_of_the_run(self):
        rows = self.write("in.jsonl", ROWS[:1])
        results = self.dir / "results"
        self.assertEqual(tokenmill("run", "--model", TINY, "--input", rows, "--output", results).code, 0)
        no_journal = self.dir / "no_journal"
        no_journal.mkdir()
        (no_journal / "output.jsonl").write_text("")
        before = sorted(path.name for path in results.iterdir())
        here = ["--output", self.dir / "o"]
        blocked = self.write("file", "x")
        for flags, text in [
                (["--model", TINY, "--input", self.dir / "none.jsonl", *here], "no such file"),
                (["--model", self.dir / "none", "--input", rows, *here], "--model"),
                (["--model", TINY, "--input", rows], "needs --output"),
                (["--model", TINY, "--input", rows, "--output", results, "--seed", "3"], "seed was 0 and is 3"),
                (["--model", TINY, "--input", rows, "--output", no_journal], "without their journal"),
                (["--model", TINY, "--input", results / "output.jsonl", "--output", results, "--restart"], "is used by this run"),
                (["--model", TINY, "--input", rows, "--output", blocked / "o"], "cannot be made"),
                (["--model", TINY, "--input", rows, *here, "--max-model-len", "100000"], "exceeds the model's"),
                (["--model", TINY, "--input", rows, *here, "--kv-cache-memory-bytes", "1K"], "--kv-cache-memory-bytes"),
                (["--model", TINY, "--input", rows, *here, "--metrics-file", rows], "would overwrite"),
                (["--model", TINY, "--input", rows, *here, "--metrics-file", self.dir / "none" / "m"], "cannot be written"),
                (["--model", TINY, "--input", rows, *here, "--iteration-log", blocked / "steps"], "cannot be written"),
                (["--model", TINY, "--input", rows, *here, "--iteration-log", self.dir], "is a directory; it must be a file"),
                (["--model", TINY, "--input", rows, *here, "--chat-template", self.dir / "none"], "--chat-template"),
                (["--model", TINY, "--input", rows, *here, "--temperature", "9"], "temperature"),
                (["--model", SPREAD, "--input", rows, *here, "--tp-invariant", "5"], "--tp-invariant 5 does not fit")]:
            with self.subTest(flags=flags):
                run, planned = tokenmill("run", *flags), tokenmill("validate", *flags)
                self.assertEqual(planned.code, run.code)
                self.assertEqual(run.code, 4 if text in ("cannot be made", "cannot be written") else 2)
                self.assertIn(text, planned.stderr)
                said = run.stderr.splitlines()[-1]  # behind what the run says before it looks at its directory
                self.assertEqual(planned.stderr.partition(text)[0].replace("validate", "run"), said.partition(text)[0])
        for flags, text in [(["-tp", 5], "choose one of 1, 2, 4, 8, 24"), (["-pp", 6], "choose 1 to 5"),
                            (["-tp", 2, "--ranks", 3], "there are 3: no whole number of replicas; start 2 or 4"),
                            (["-dp", 3, "--ranks", 2], "= 3 ranks, and there are 2; start 3"), (["--ranks", 0], "--ranks is 0")]:
            with self.subTest(flags=flags):
                self.assertIn(text, self.validate(ROWS[:1], *flags, model=SPREAD, expect=2).stderr)
        self.assertIn("--ranks is not an option of this command", tokenmill("run", "--ranks", 2).stderr)
        self.assertEqual(sorted(path.name for path in results.iterdir()), before)

    def test_it_needs_no_mpi_and_takes_the_job_file(self):
        broken = environment(OMPI_MCA_btl="none", OMPI_MCA_pml="none")
        rows = self.write("in.jsonl", ROWS[:1])
        job = self.write("job.yaml", f"model: {TINY}\ninput: {rows}\noutput: {self.dir}/o\npipeline-parallel-size: 2\n")
        self.assertNotEqual(tokenmill("run", job, "-pp", 1, env=broken).code, 0)
        self.assertFalse((self.dir / "o").exists())
        result = tokenmill("validate", job, env=broken)
        self.assertEqual((result.code, result.stderr), (0, ""))
        self.assertIn("1 replica of 2 stages", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
