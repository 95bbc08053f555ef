"""--device cuda, on the emulated device: the CPU's tokens, alone and in replicas; what a GPU cannot do yet is refused by name."""
import unittest

from harness import Case

ROWS = [{"prompt_token_ids": [i + 4, 9, 30 + i] + list(range(5, 5 + 9 * (i % 3))), "max_tokens": 5, "ignore_eos": True,
         "return_token_ids": True} for i in range(6)]
FLAGS = ["--temperature", "0", "--max-num-seqs", "4", "--max-num-batched-tokens", "64",
         "--num-gpu-blocks-override", "32", "--threads", "1"]


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
                (["--tensor-parallel-size", "2"], 2, "--tensor-parallel-size 2 on cuda:0"),
                (["--pipeline-parallel-size", "2"], 2, "--pipeline-parallel-size 2 on cuda:0"),
                (["--weight-cache", self.dir / "cache"], 0, "packed weights are kept for CPUs only")):
            with self.subTest(flags=flags):
                result = self.job(ROWS, *FLAGS, "--device", "cuda", *flags, ranks=ranks, expect=2)
                self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
