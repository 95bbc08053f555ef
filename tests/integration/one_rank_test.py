"""A build without MPI (TOKENMILL_MPI=off): one rank does whole jobs and benchmarks; launchers of more are refused by name."""
import json
import unittest

from harness import DATA, TINY, Case, environment, tokenmill


class OneRank(Case):
    def test_a_job_gives_transformers_tokens_and_its_report_says_that_there_is_no_mpi(self):
        cases = json.loads((DATA / "golden" / "tiny-llama.json").read_text())["cases"]
        rows = [{"prompt_token_ids": case["prompt_ids"], "max_tokens": 4, "ignore_eos": True, "return_token_ids": True}
                for case in cases]
        result = self.job(rows, "--temperature", "0", "--dtype", "float32", "--max-model-len", "192", "--threads", "1")
        judged = 0
        for case, row in zip(cases, result.rows, strict=True):
            # Where the two best logits are as close as that, rounding may choose the other.
            end = next((i for i, gap in enumerate(case["gaps"][:4]) if gap < 5e-4), 4)
            self.assertEqual(row["outputs"][0]["token_ids"][:end], case["output_ids"][:end], case["name"])
            judged += end
        self.assertGreater(judged, 3 * len(cases))
        self.assertIn('mpi: "no MPI (one rank)"', (result.output / "run.yaml").read_text())

    def test_throughput_is_measured(self):
        path = self.dir / "figures.json"
        result = tokenmill("bench", "throughput", "--model", TINY, "--num-prompts", "3", "--input-len", "8",
                           "--output-len", "4", "--num-warmups", "1", "--threads", "1", "--output-json", path)
        self.assertEqual(result.code, 0, result.stderr)
        self.assertEqual(json.loads(path.read_text())["total_output_tokens"], 12)

    def test_the_version_says_it(self):
        self.assertRegex(tokenmill("--version").stdout, r"^tokenmill \S+, one rank: built without MPI\n$")

    def test_more_than_one_rank_is_refused_by_name(self):
        rows = [{"prompt": "x"}]
        for variables in ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
                          {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "PMIX_RANK": "0"}):
            with self.subTest(**variables):
                result = self.job(rows, expect=2, env=environment(**variables))
                self.assertIn("built without MPI (TOKENMILL_MPI=off)", result.stderr)
                self.assertIn("start it alone", result.stderr)
        other = self.job(rows, expect=2, env=environment(OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1"))
        self.assertEqual(other.stderr, "")  # rank 0 speaks for all
        self.job(rows, "--tensor-parallel-size", "2", expect=2)


if __name__ == "__main__":
    unittest.main()
