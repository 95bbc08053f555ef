"""One model over several emulated devices, with the stand-in of NCCL between them: the tokens of one CPU, and the bytes of
one device where that is promised. Streams run when work is enqueued, since ranks wait for each other outside them, too."""
import unittest

from harness import DATA, Case, environment

MODELS = {3: str(DATA / "models" / "tiny-spread3"), 8: str(DATA / "models" / "tiny-spread8")}  # by key/value heads
FLAGS = ["--max-num-seqs", "4", "--max-num-batched-tokens", "32", "--num-gpu-blocks-override", "32",
         "--threads", "1", "--dtype", "float32"]
GREEDY = [{"prompt_token_ids": [i + 4, 9, 30 + i] + list(range(5, 5 + 9 * (i % 3))), "max_tokens": 6, "temperature": 0,
           "ignore_eos": True, "return_token_ids": True} for i in range(8)]
SAMPLED = [row | {"temperature": 0.8, "top_p": 0.9, "seed": i, "logprobs": 3, "prompt_logprobs": 2,
                  "repetition_penalty": 1.2} for i, row in enumerate(GREEDY)]


def tokens(result):
    return [row["outputs"][0]["token_ids"] for row in result.rows]


class CudaParallel(Case):
    def spread(self, heads, rows, tp, pp, dp, *flags):
        flags = [*FLAGS, "--device", "cuda", "--tensor-parallel-size", tp, "--pipeline-parallel-size", pp, "--data-parallel-size", dp, *flags]
        return self.job(rows, *flags, ranks=tp * pp * dp, model=MODELS[heads],
                        env=environment(TOKENMILL_EMULATION_MODE="eager"))

    def test_greedy_tokens_are_those_of_a_cpu(self):
        for heads, layouts in ((3, ((3, 1, 1),)), (8, ((2, 1, 1), (2, 2, 1), (2, 1, 2)))):
            cpu = tokens(self.job(GREEDY, *FLAGS, "--device", "cpu", model=MODELS[heads]))
            for tp, pp, dp in layouts:
                with self.subTest(tp=tp, pp=pp, dp=dp):
                    self.assertEqual(tokens(self.spread(heads, GREEDY, tp, pp, dp)), cpu)

    def test_stages_and_replicas_give_the_bytes_of_one_device(self):
        alone = self.spread(3, SAMPLED, 1, 1, 1).bytes
        for pp, dp in ((2, 1), (1, 2)):
            with self.subTest(pp=pp, dp=dp):
                self.assertEqual(self.spread(3, SAMPLED, 1, pp, dp).bytes, alone)

    def test_tensor_parallel_sizes_give_equal_bytes_where_that_is_promised(self):
        alone = self.spread(3, SAMPLED, 1, 1, 1, "--tp-invariant", 3).bytes
        self.assertEqual(self.spread(3, SAMPLED, 3, 1, 1, "--tp-invariant", 3).bytes, alone)

    def test_graphs_give_the_bytes_of_single_launches(self):
        for heads, tp, pp in ((8, 2, 1), (3, 1, 2)):
            with self.subTest(tp=tp, pp=pp):
                eager = self.spread(heads, SAMPLED[:4], tp, pp, 1, "--enforce-eager")
                graphs = self.spread(heads, SAMPLED[:4], tp, pp, 1)
                self.assertEqual(graphs.bytes, eager.bytes)
                self.assertEqual((eager.figures("largest"), graphs.figures("largest")), ([], [32]))
                self.assertEqual(graphs.figures("eager_layers"), [0])


if __name__ == "__main__":
    unittest.main()
