"""How the program is started, what it refuses, and how a job ends when something fails."""
import json
import os
import shutil
import subprocess
import unittest

from harness import DATA, MPIEXEC, TINY, TOKENMILL, Case, environment, tokenmill

ROW = [{"id": 1, "prompt": "x", "max_tokens": 2}]


class Launch(Case):
    def check_refused(self, result, code, *texts):
        self.assertEqual(result.code, code, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("error[")]
        self.assertEqual(len(lines), 1, result.stderr)
        for text in texts:
            self.assertIn(text, lines[0])

    def test_help_and_version_need_nothing(self):
        for arguments in (["--help"], ["run", "--help"], ["--version"], ["bench", "throughput", "--help"]):
            result = tokenmill(*arguments, env={"PATH": "/nonexistent"})
            self.assertEqual((result.code, result.stderr), (0, ""))
            self.assertIn("tokenmill", result.stdout)

    def test_usage_errors_are_printed_once_and_exit_2(self):
        for ranks in (0, 3):
            self.check_refused(tokenmill("run", "--max-num-seqz", "3", ranks=ranks), 2, "did you mean --max-num-seqs?")
            self.check_refused(tokenmill("run", "--model", TINY, ranks=ranks), 2, "run needs --input")
            self.check_refused(tokenmill("run", "--enable-expert-parallel", ranks=ranks), 2,
                               "--enable-expert-parallel is not available in this version")
        self.check_refused(tokenmill("report", "x"), 2, "report is not available in this version")
        self.check_refused(tokenmill("inspect", "--model", self.dir / "none"), 2, "no such file")

    def test_a_model_that_cannot_run_stops_all_ranks_with_one_message(self):
        model = self.dir / "model"
        shutil.copytree(TINY, model)
        config = model / "config.json"
        config.write_text(config.read_text().replace('"hidden_act": "silu"', '"hidden_act": "swish9"'))
        rows = self.write("in.jsonl", ROW)
        self.check_refused(tokenmill("run", "--model", model, "--input", rows, "--output", self.dir / "o", ranks=2), 2,
                           "hidden_act", "swish9")
        self.assertFalse((self.dir / "o").exists())

    def test_ranks_that_would_compute_other_results_are_refused(self):
        stale = self.dir / "stale"  # the same shapes, another weight
        shutil.copytree(TINY, stale)
        weights = bytearray((stale / "model.safetensors").read_bytes())
        weights[-5] ^= 1
        (stale / "model.safetensors").write_bytes(weights)
        rows = self.write("in.jsonl", ROW)
        flags = ["run", "--input", rows, "--output", self.dir / "o"]
        for other, text in [(["--model", stale], "model file model.safetensors"), (["--model", TINY, "--seed", "7"], "seed 7"),
                            (["--model", TINY, "--temperature", "0.5"], "temperature 0.5")]:
            done = subprocess.run([MPIEXEC, "-n", "2", TOKENMILL, *flags, "--model", TINY, ":", "-n", "1", TOKENMILL, *flags, *other],
                                  capture_output=True, text=True, timeout=60, env=environment(), check=False)
            done.code = done.returncode
            self.check_refused(done, 2, "rank 2 would compute other results than rank 0", text)
        self.assertFalse((self.dir / "o").exists())

    def test_one_rank_that_cannot_read_its_weights_ends_the_job(self):
        model = self.dir / "model"
        shutil.copytree(TINY, model)
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
        rows = self.write("in.jsonl", ROW)
        flags = ["run", "--input", rows, "--output", self.dir / "o", "--model"]
        done = subprocess.run([MPIEXEC, "-n", "3", TOKENMILL, *flags, TINY, ":", "-n", "1", TOKENMILL, *flags, model],
                              capture_output=True, text=True, timeout=60, env=environment(), check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("error[")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("rank 3 of 4", lines[0])
        self.assertIn("model.safetensors", lines[0])
        self.assertEqual(done.returncode, 4)
        self.assertFalse((self.dir / "o" / "output.jsonl").exists())

    def test_tasks_without_a_process_manager_are_refused_before_anything_is_written(self):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
        rows = self.write("in.jsonl", ROW)
        arguments = ["run", "--model", TINY, "--input", rows, "--output", self.dir / "o"]
        for task in range(4):
            result = tokenmill(*arguments, env=environment(**slurm, SLURM_PROCID=str(task)))
            self.assertEqual(result.code, 2)
            self.assertEqual("--mpi=pmix" in result.stderr, task == 0, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1 if task == 0 else 0)
        self.assertFalse((self.dir / "o").exists())
        one_task = environment(**slurm | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, SLURM_PROCID="0")
        self.assertEqual(tokenmill(*arguments, env=one_task).code, 0)
        # mpirun -n 1 inside a larger allocation
        result = tokenmill(*arguments, "--restart", ranks=1, env=environment(SLURM_NTASKS="4", SLURM_JOB_ID="7"))
        self.assertEqual(result.code, 0, result.stderr)

    def test_a_job_goes_on_as_what_it_was_unless_told_otherwise(self):
        rows = self.write("in.jsonl", ROW)
        arguments = ["run", "--model", TINY, "--input", rows, "--output", self.dir / "o"]
        self.assertEqual(tokenmill(*arguments).code, 0)
        before = (self.dir / "o" / "output.jsonl").read_bytes()
        again = tokenmill(*arguments, ranks=2)
        self.assertEqual(again.code, 0, again.stderr)
        self.assertIn("continuing: 1 of 1 rows are done (0 with errors)", again.stderr)
        for flags, text in [(["--seed", 7], "seed was 0 and is 7"), (["--temperature", 0.5], "temperature was not there and is 0.5"),
                            (["--date", "2020-02-02"], "and is 2020-02-02"), (["--dtype", "bfloat16"], "dtype was float32 and is bfloat16")]:
            for ranks in (0, 2):
                self.check_refused(tokenmill(*arguments, *flags, ranks=ranks), 2, "began otherwise: ", text, "--accept-change")
        self.assertEqual((self.dir / "o" / "output.jsonl").read_bytes(), before)
        # How it is computed may change.
        self.assertEqual(tokenmill(*arguments, "--max-num-seqs", 3, "--max-num-batched-tokens", 64).code, 0)
        self.assertEqual(tokenmill(*arguments, "--seed", 7, "--accept-change").code, 0)
        self.check_refused(tokenmill(*arguments), 2, "seed was 7 and is 0")
        rows.write_text('{"id": 2, "prompt": "y"}\n')
        self.check_refused(tokenmill(*arguments, "--seed", 7), 2, f"input 1 was {rows}, changed ")
        self.assertEqual(tokenmill(*arguments, "--restart").code, 0)
        self.assertIn(b'"id":2', (self.dir / "o" / "output.jsonl").read_bytes())

    def test_an_output_that_cannot_be_made_is_named_as_it_was_given(self):
        rows = self.write("in.jsonl", ROW)
        result = tokenmill("run", "--model", TINY, "--input", rows, "--output", "/dev/null/answers")
        self.assertEqual(result.code, 4, result.stderr)
        self.assertIn("output directory /dev/null/answers cannot be made: Not a directory", result.stderr)

    def test_the_job_file_and_flags(self):
        job = self.write("job.yaml", f"model: {TINY}\ninput: {self.write('in.jsonl', ROW)}\noutput: {self.dir}/o\n"
                                     "sampling:\n  max_tokens: 5\n")
        self.assertEqual(tokenmill("run", job, "--max-num-seqs", "2", ranks=2).code, 0)
        self.assertIn("max_num_seqs: 2", (self.dir / "o" / "run.yaml").read_text())
        job.write_text("model: x\nmax-num-seq: 2\n")
        self.check_refused(tokenmill("run", job, ranks=2), 2, f"{job}:2: max-num-seq", "max-num-seqs?")

    def test_more_threads_than_cores_are_a_warning(self):
        rows = [{"prompt": "x", "max_tokens": 1}]
        cores = len(os.sched_getaffinity(0))
        self.assertIn(f"--threads {cores + 1} on {cores} core", self.job(rows, "--threads", cores + 1).stderr)
        self.assertNotIn("--threads", self.job(rows, "--threads", cores).stderr)

    def test_what_a_run_says(self):
        result = self.job([{"id": i, "prompt": "x", "max_tokens": 3} for i in range(5)], ranks=2)
        for text in ("2 ranks on 1 node, 2 replicas", "tiny-llama", "avx", "rows 5 in 1 file", "5 of 5 rows answered",
                     "run.yaml"):
            self.assertIn(text, result.stderr)
        quiet = self.job(ROW, "--log-level", "error")
        self.assertEqual(quiet.stderr, "")
        debug = self.job(ROW, env=environment(TOKENMILL_LOG_LEVEL="debug"))
        self.assertIn("memory plan", debug.stderr)


class OtherCommands(Case):
    def test_tokenize_takes_texts_chats_and_rows(self):
        lines = ['"The capital"', '[{"role":"user","content":"hi"}]', '{"messages":[{"role":"user","content":"hi"}]}',
                 '{"prompt":"The capital"}', "[1,2]", "{", '{"messages":[]}', "3"]
        result = tokenmill("tokenize", "--model", TINY, stdin="\n".join(lines))
        self.assertEqual(result.code, 3, result.stderr)  # three lines failed
        got = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(got), 8)
        self.assertEqual(got[0]["text"], "The capital")
        self.assertEqual(got[0], got[3])
        self.assertEqual(got[1], got[2])
        self.assertEqual(got[1]["prompt"], "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(got[4]["ids"], [1, 2])
        self.assertEqual([list(line) for line in got[5:]], [["error"]] * 3)
        spm = DATA / "models" / "tiny-llama3"
        good = tokenmill("tokenize", "--model", spm, stdin='"x"')
        self.assertEqual(good.code, 0, good.stderr)
        with_start = good.stdout
        without = tokenmill("tokenize", "--model", spm, "--add-special-tokens", "false", stdin='"x"').stdout
        self.assertEqual(json.loads(with_start)["ids"][1:], json.loads(without)["ids"])

    def test_a_file_at_its_size_limit_is_a_failed_write(self):
        shell = ("sh", "-c", f'exec prlimit --fsize=1024 "$@" > "{self.dir}/ids.jsonl"', "sh")  # tokenize needs no MPI
        result = tokenmill("tokenize", "--model", TINY, stdin='"The capital"\n' * 1000, prefix=shell)
        self.assertEqual(result.code, 4, result.stderr)
        self.assertIn("error[io] standard output cannot be written", result.stderr)

    def test_inspect_prints_what_a_model_is(self):
        for model in (TINY, DATA / "models" / "gguf" / "tiny-llama-Q4_1.gguf"):
            result = tokenmill("inspect", "--model", model)
            self.assertEqual(result.code, 0, result.stderr)
            self.assertRegex(result.stdout, r"hidden_size +64")
            self.assertIn("model.layers.1.self_attn.q_proj.weight", result.stdout)

    def test_bench_throughput_writes_its_figures(self):
        path = self.dir / "bench.json"
        for ranks in (0, 2):
            result = tokenmill("bench", "throughput", "--model", TINY, "--input-len", "20", "--output-len", "5",
                               "--num-prompts", "9", "--output-json", path, ranks=ranks)
            self.assertEqual(result.code, 0, result.stderr)
            self.assertIn("9 requests of 20 + 5 tokens", result.stdout)
            figures = json.loads(path.read_text())
            self.assertEqual((figures["num_requests"], figures["total_input_tokens"], figures["total_output_tokens"],
                              figures["total_num_tokens"]), (9, 180, 45, 225))
            self.assertAlmostEqual(figures["tokens_per_second"], 225 / figures["elapsed_time"],
                                   delta=figures["tokens_per_second"] * 1e-3)
            self.assertEqual(figures["world"]["dp"], max(1, ranks))
            self.assertEqual(figures["prefix_cache_hit_rate"], 0)
            for name in ("ttft", "tpot", "itl", "e2el"):
                self.assertGreater(figures[f"mean_{name}_ms"], 0)
                self.assertLessEqual(figures[f"median_{name}_ms"], figures[f"p99_{name}_ms"])
            self.assertLessEqual(figures["tail_seconds"], figures["elapsed_time"])

    def test_bench_throughput_repeats_its_load(self):
        result = tokenmill("bench", "throughput", "--model", TINY, "--input-len", "40", "--output-len", "5", "--num-prompts", "6",
                           "--repetitions", "3", "--output-json", self.dir / "bench.json", ranks=2)
        self.assertEqual(result.code, 0, result.stderr)
        figures = json.loads((self.dir / "bench.json").read_text())
        elapsed = [sample["elapsed_time"] for sample in figures["samples"]]
        self.assertEqual(len(elapsed), 3)
        spread = figures["spread"]["elapsed_time"]
        self.assertEqual([spread["min"], spread["median"], spread["max"]], sorted(elapsed))
        self.assertEqual(figures["elapsed_time"], spread["median"])
        self.assertEqual((figures["total_input_tokens"], figures["cached_input_tokens"]), (240, 0))  # no prompt comes twice
        self.assertIn("of 3 runs", result.stdout)

    def test_bench_output_is_checked_before_and_written_in_place_when_it_is_no_file(self):
        load = ("bench", "throughput", "--model", TINY, "--dataset-name", "prefix_repetition", "--num-prompts", "12",
                "--prefix-repetition-prefix-len", "64", "--prefix-repetition-suffix-len", "4",
                "--prefix-repetition-num-prefixes", "2", "--output-len", "3", "--max-num-seqs", "2")
        result = tokenmill(*load, "--output-json", "/dev/stderr", "--iteration-log", self.dir / "steps.jsonl")
        self.assertEqual(result.code, 0, result.stderr)
        figures = json.loads(result.stderr.splitlines()[-1])
        self.assertEqual((figures["total_input_tokens"], figures["completed"]), (12 * 68, 12))
        self.assertGreater(figures["prefix_cache_hit_rate"], 0.5)
        self.assertEqual(figures["cached_input_tokens"], 10 * 64)
        steps = [json.loads(line) for line in (self.dir / "steps.jsonl").read_text().splitlines()]
        self.assertGreater(len(steps), 18)
        self.assertTrue(all(step["gemm_s"] > 0 and step["sequences"] <= 2 for step in steps))
        refused = tokenmill(*load, "--output-json", self.dir / "none" / "x.json")
        self.assertEqual((refused.code, refused.stdout), (4, ""))
        self.assertIn("x.json cannot be written", refused.stderr)
        for arguments in (("bench", "kernels", "--filter", "nothing"), ("bench", "latency")):
            refused = tokenmill(*arguments)
            self.assertEqual((refused.code, refused.stdout), (2, ""))
        self.assertIn("throughput", tokenmill("bench", "--help").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
