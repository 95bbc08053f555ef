"""--load-format dummy: a model of config.json alone, the same on every layout."""
import json
import pathlib
import shutil
import unittest

from harness import DATA, TINY, Case, tokenmill

ROWS = [{"id": str(i), "prompt": "one two three " * (1 + i % 3), "max_tokens": 6} for i in range(12)]


class DummyWeights(Case):
    def model(self, *files):
        """A directory with only these files of the tiny Llama."""
        path = self.dir / "model"
        path.mkdir(exist_ok=True)
        for name in files:
            shutil.copy(pathlib.Path(TINY) / name, path)
        return path

    def test_throughput_is_measured_with_a_configuration_alone(self):
        model = self.model("config.json")
        load = ("bench", "throughput", "--model", model, "--input-len", 16, "--output-len", 4, "--num-prompts", 3,
                "--output-json", self.dir / "figures.json")
        done = tokenmill(*load, "--load-format", "dummy")
        self.assertEqual(done.code, 0, done.stderr)
        figures = json.loads((self.dir / "figures.json").read_text())
        self.assertEqual(figures["num_requests"], 3)
        done = tokenmill(*load)
        self.assertEqual(done.code, 4, done.stderr)
        self.assertIn("holds no *.safetensors file", done.stderr)

    def test_the_tensors_of_a_gguf_file_are_not_missed(self):
        done = tokenmill("bench", "throughput", "--model", next((DATA / "models" / "gguf").glob("*.gguf")), "--load-format", "dummy",
                         "--input-len", 2, "--output-len", 2, "--num-prompts", 1)
        self.assertEqual(done.code, 0, done.stderr)
        self.assertNotIn("not used by this configuration", done.stderr)

    def test_every_layout_has_the_same_model(self):
        model = self.model("config.json", "tokenizer.json", "tokenizer_config.json")
        flags = ("--load-format", "dummy", "--dtype", "float32", "--temperature", 1, "--tp-invariant", 2)
        one = self.job(ROWS, *flags, model=model)
        self.assertEqual([row["error"] for row in one.rows], [None] * len(ROWS))
        self.assertEqual(len({row["outputs"][0]["text"] for row in one.rows}), len(ROWS))
        for layout in (("--tensor-parallel-size", 2), ("--pipeline-parallel-size", 2), ("--data-parallel-size", 2)):
            self.assertEqual(self.job(ROWS, *flags, *layout, ranks=2, model=model).bytes, one.bytes, layout)

    def test_a_job_of_the_checkpoint_is_not_continued_with_it(self):
        rows = self.write("rows.jsonl", ROWS)
        job = ("run", "--model", TINY, "--input", rows, "--output", self.dir / "out")
        self.assertEqual(tokenmill(*job).code, 0)
        done = tokenmill(*job, "--load-format", "dummy")
        self.assertEqual(done.code, 2, done.stderr)
        self.assertIn("load_format", done.stderr)

    def test_what_keeps_or_copies_weights_is_refused_with_it(self):
        for option in ("--weight-cache", "--stage-dir"):
            done = tokenmill("run", "--model", TINY, "--input", self.write("rows.jsonl", ROWS), "--output",
                             self.dir / "out", "--load-format", "dummy", option, self.dir / "kept")
            self.assertEqual(done.code, 2, done.stderr)
            self.assertIn(option, done.stderr)


if __name__ == "__main__":
    unittest.main()
