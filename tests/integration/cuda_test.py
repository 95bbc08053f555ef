"""--device cuda, on the emulated device: transformers' tokens of every tiny model by each attention backend, by replayed
graphs and by single launches, in whatever order the device's streams run; the CPU's tokens alone and in replicas; what a GPU
cannot do yet is refused by name."""
import json
import shutil
import unittest

from harness import DATA, Case, environment

ROWS = [{"prompt_token_ids": [i + 4, 9, 30 + i] + list(range(5, 5 + 9 * (i % 3))), "max_tokens": 5, "ignore_eos": True,
         "return_token_ids": True} for i in range(6)]
FLAGS = ["--temperature", "0", "--max-num-seqs", "4", "--max-num-batched-tokens", "64",
         "--num-gpu-blocks-override", "32", "--threads", "1"]

# But tiny-llama-dynamic, whose golden file is for more positions than its configuration allows.
GOLDEN = {path.stem: json.loads(path.read_text()) for path in sorted((DATA / "golden").glob("tiny-*.json"))
          if path.stem != "tiny-llama-dynamic"}
CONFIGS = {name: json.loads((DATA / "models" / name / "config.json").read_text()) for name in GOLDEN}
# Around a block of 16, a window of 24 and two blocks. All of them would take long on an emulated device.
CASES = [f"random-{length}" for length in (1, 17, 25, 33)]
MATRIX_HEADS = {"paged_mma": (64, 96, 128, 256), "paged_wgmma": (64, 128)}  # head sizes


def head_size(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def architectures(models):
    return {CONFIGS[name]["architectures"][0] for name in models}


class Golden(Case):
    """Greedy tokens of the cases in tests/data/golden, each up to its first near tie."""

    def check(self, backend, models, dtype, gap_guard, num_tokens):
        """gap_guard: where the two best logits are as close as that, dtype's rounding may choose the other. The share of
        the tokens that was judged."""
        judged, seen = 0, set()
        for name in models:
            cases = [case for case in GOLDEN[name]["cases"] if case["name"] in CASES]
            self.assertEqual(len(cases), len(CASES))
            rows = [{"prompt_token_ids": case["prompt_ids"], "max_tokens": num_tokens, "ignore_eos": True,
                     "return_token_ids": True} for case in cases]
            with self.subTest(model=name):
                flags = ["--device", "cuda", "--attention-backend", backend, "--dtype", dtype, "--temperature", "0",
                         "--max-model-len", "192", "--num-gpu-blocks-override", "200", "--threads", "1"]
                result = self.job(rows, *flags, model=DATA / "models" / name)
                if architectures([name]) - seen:  # by single launches, too
                    eager = self.job(rows, *flags, "--enforce-eager", model=DATA / "models" / name)
                    self.assertEqual(eager.bytes, result.bytes)
                seen |= architectures([name])
                for case, row in zip(cases, result.rows):
                    gaps = case["gaps"][:num_tokens]
                    end = next((i for i, gap in enumerate(gaps) if gap < gap_guard), num_tokens)
                    self.assertEqual(row["outputs"][0]["token_ids"][:end], case["output_ids"][:end], case["name"])
                    judged += end / num_tokens / len(cases) / len(models)
        return judged

    def test_reference_attention_gives_every_model_s_tokens_in_float32(self):
        self.assertAlmostEqual(self.check("reference", list(GOLDEN), "float32", 5e-4, 6), 1)

    def test_matrix_instructions_give_every_architecture_s_tokens_in_float16(self):
        for backend, heads in MATRIX_HEADS.items():
            with self.subTest(backend=backend):
                models = [name for name, config in CONFIGS.items() if head_size(config) in heads]
                self.assertEqual(architectures(models), architectures(GOLDEN))
                self.assertGreater(self.check(backend, models, "float16", 0.1, 16), 0.5)

    def test_matrix_instructions_refuse_a_head_size_that_they_lack(self):
        for backend in MATRIX_HEADS:
            with self.subTest(backend=backend):
                result = self.job(ROWS, *FLAGS, "--device", "cuda", "--dtype", "float16", "--attention-backend", backend, expect=2)
                self.assertIn(f"--attention-backend {backend} takes bfloat16 and float16", result.stderr)


class Graphs(Case):
    """Rows of every kind in steps of many sizes: those that report or score tokens choose them outside of graphs."""
    ROWS = [{"prompt_token_ids": [5] * 16 + [i + 4, 9, 30 + i] if i % 2 else [7 + i] * (1 + 5 * i), "max_tokens": 2 + i % 4,
             "ignore_eos": True, "seed": i, "temperature": 0.9 * (i % 4 > 0), "return_token_ids": True}
            | {1: {"presence_penalty": 0.5}, 2: {"logprobs": 2}, 3: {"n": 2, "top_p": 0.8}, 4: {"prompt_logprobs": 1}}.get(i % 6, {})
            for i in range(12)]
    FLAGS = ["--device", "cuda", "--max-num-seqs", "3", "--max-num-batched-tokens", "24", "--max-model-len", "96",
             "--num-gpu-blocks-override", "20", "--threads", "1"]

    def test_graphs_give_the_bytes_of_single_launches_in_whatever_order_streams_run(self):
        for backend, model, dtype in (("reference", "tiny-mistral", "float32"), ("paged_mma", "tiny-mistral-head96", "float16"),
                                      ("paged_wgmma", "tiny-qwen3-head128", "float16")):
            def run(seed, *flags):
                return self.job(self.ROWS, *self.FLAGS, "--attention-backend", backend, "--dtype", dtype, *flags,
                                model=DATA / "models" / model, env=environment(TOKENMILL_EMULATION_SEED=str(seed)))
            eager = run(0, "--enforce-eager")
            self.assertEqual(eager.figures("graphs"), [])
            for seed, *flags in ((3,), (4,), (5, "--max-cudagraph-capture-size", "8")):
                with self.subTest(backend=backend, seed=seed):
                    graphs = run(seed, *flags)
                    self.assertEqual(graphs.bytes, eager.bytes)
                    self.assertEqual(graphs.figures("largest"), [8 if flags else 24])
                    self.assertEqual(graphs.figures("eager_layers")[0] > 0, bool(flags))
                    self.assertGreater(graphs.figures("eager_heads")[0], 0)


class Cascade(Case):
    def test_rows_read_their_common_beginning_together_or_one_by_one_with_the_same_bytes(self):
        model = self.dir / "model"
        shutil.copytree(DATA / "models" / "tiny-qwen3-head128", model)
        config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 2048}
        (model / "config.json").write_text(json.dumps(config))
        beginning = [5 + i * i % 230 for i in range(1056)]  # of whole blocks, and more than a split of either backend
        rows = [{"prompt_token_ids": beginning + [9 + i] * i, "max_tokens": 4, "ignore_eos": True, "logprobs": 2} for i in range(5)]
        for backend in MATRIX_HEADS:
            with self.subTest(backend=backend):
                results = [self.job(rows, "--device", "cuda", "--dtype", "float16", "--attention-backend", backend,
                                    "--temperature", "0", "--max-model-len", "1100", "--max-num-seqs", "5",
                                    "--max-num-batched-tokens", "1100", "--max-cudagraph-capture-size", "8",
                                    "--num-gpu-blocks-override", "120", "--threads", "1", *flags, model=model)
                           for flags in ((), ("--disable-cascade-attn",))]
                self.assertEqual(results[0].bytes, results[1].bytes)
                self.assertGreater(results[0].figures("prefix_cache_hits")[0], 4 * 1040)


class DeviceMemory(Case):
    """What the device's context, libraries and graphs take is measured and counts, too."""
    def run_with(self, *flags, expect=0, **variables):
        return self.job(ROWS[:2], "--device", "cuda", "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "1024",
                        "--max-num-batched-tokens", "1024", "--max-cudagraph-capture-size", "32", "--max-logprobs", "1", "--threads", "1", *flags, expect=expect,
                        env=environment(**{f"TOKENMILL_EMULATION_{name}": str(value) for name, value in variables.items()}))

    def test_utilization_is_kept_within_a_hundredth(self):
        for flags, node in (((), 1 << 10), ((), 40 << 10), (("--enforce-eager",), 40 << 10)):
            for share in (0.8, 0.9):
                with self.subTest(flags=flags, node=node, share=share):
                    result = self.run_with("--gpu-memory-utilization", share, *flags, MEMORY=160 << 20, CONTEXT=9 << 20,
                                           GRAPH_NODE=node)
                    (used,), (total,) = result.figures("used_bytes"), result.figures("total_bytes")
                    self.assertLessEqual(used / total, share)
                    self.assertGreater(used / total, share - 0.01)
                    self.assertGreater(result.figures("driver_bytes")[0], 9 << 20)

    def test_too_little_memory_is_one_message_with_the_numbers(self):
        for variables, share, *texts in (
                ({"MEMORY": 40 << 20}, 0.9, "36.00 MiB of 40.00 MiB", "do not hold weights", "activations", "KV cache"),
                ({"MEMORY": 160 << 20, "CONTEXT": 130 << 20}, 0.9, "cannot allocate", "are free"),
                ({"MEMORY": 160 << 20, "CONTEXT": 60 << 20}, 0.5, "of 160.00 MiB", "driver and graphs 6"),
                ({"MEMORY": 160 << 20, "GRAPH_NODE": 100 << 20}, 0.9, "no memory for a CUDA graph", "--enforce-eager")):
            with self.subTest(**variables):
                result = self.run_with("--gpu-memory-utilization", share, expect=4, **variables)
                errors = [line for line in result.stderr.splitlines() if "error" in line]
                self.assertEqual(len(errors), 1, result.stderr)
                for text in texts:
                    self.assertIn(text, errors[0])


class Cuda(Case):
    def ids(self, *flags, ranks=0, rows=ROWS, dtype="float32"):
        result = self.job(rows, *FLAGS, "--dtype", dtype, *flags, ranks=ranks)
        return [row["outputs"][0]["token_ids"] for row in result.rows], result

    def test_greedy_tokens_are_those_of_the_cpu_on_one_rank_and_on_two(self):
        want, _ = self.ids("--device", "cpu")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                got, result = self.ids("--device", "cuda", ranks=ranks)
                self.assertEqual(got, want)
                self.assertIn('numerics: "cuda-sm_90-emulated"', (result.output / "run.yaml").read_text())

    def test_auto_leaves_the_emulated_device_alone(self):
        _, result = self.ids(rows=ROWS[:1])
        self.assertIn('device: "cpu ', (result.output / "run.yaml").read_text())

    def test_sampled_rows_with_scores_and_penalties_do_not_depend_on_the_ranks(self):
        rows = [row | {"temperature": 0.8, "top_p": 0.9, "seed": i, "logprobs": 3, "presence_penalty": 0.5}
                for i, row in enumerate(ROWS)]
        results = [self.ids("--device", "cuda", rows=rows, ranks=ranks, dtype="float16")[1] for ranks in (0, 2)]
        self.assertEqual(results[0].bytes, results[1].bytes)

    def test_what_a_gpu_cannot_do_yet_is_refused_by_name(self):
        for flags, ranks, text in (
                (["--tensor-parallel-size", "2"], 2, "set TOKENMILL_EMULATION_MODE=eager"),
                (["--weight-cache", self.dir / "cache"], 0, "packed weights are kept for CPUs only")):
            with self.subTest(flags=flags):
                result = self.job(ROWS, *FLAGS, "--device", "cuda", *flags, ranks=ranks, expect=2)
                self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
