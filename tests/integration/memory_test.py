"""Memory is bounded by queues, not by the number of rows or the length of one."""
import json
import os
import shutil
import unittest

from harness import DATA, Case

FULL = "TOKENMILL_TEST_FULL" in os.environ
MANY = 1_000_000 if FULL else 300_000
FEW = 10_000
ALLOWED = (64 if FULL else 32) << 20


class Memory(Case):
    def peak(self, count):
        path = self.dir / f"rows-{count}.jsonl"
        with open(path, "w", encoding="utf-8") as out:
            for number in range(count):
                out.write('{"id": "row-%d", "prompt": "the mill", "max_tokens": 1}\n' % number)
        result = self.job(path, "--temperature", "0", "--max-model-len", "64")
        self.assertEqual(result.bytes.count(b"\n"), count)
        path.unlink()
        return max(result.figures("peak_resident_bytes"))

    def test_many_rows_take_no_more_than_few(self):
        few, many = self.peak(FEW), self.peak(MANY)
        self.assertLess(many - few, ALLOWED, f"{FEW} rows: {few} bytes, {MANY} rows: {many} bytes")

    def test_the_samples_of_a_row_share_its_prompt(self):
        model = self.dir / "model"
        shutil.copytree(DATA / "models" / "tiny-llama", model)
        config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 16384}
        (model / "config.json").write_text(json.dumps(config))
        peaks = []
        for count in (1, 4096):  # 4,096 copies of the prompt are 131 MB
            row = {"prompt_token_ids": [i * i % 251 for i in range(8000)], "n": count, "max_tokens": 1, "temperature": 1}
            result = self.job([row], "--max-num-seqs", 32, "--num-gpu-blocks-override", 1024, model=model)
            self.assertEqual(len(result.rows[0]["outputs"]), count)
            peaks += result.figures("peak_resident_bytes")
        self.assertLess(peaks[1] - peaks[0], 32 << 20, peaks)

    def test_one_row_of_100_megabytes_is_an_error_row(self):
        path = self.dir / "long.jsonl"
        with open(path, "wb") as out:
            out.write(b'{"id": 1, "prompt": "a", "max_tokens": 1}\n{"id": 2, "prompt": "')
            for _ in range(100):
                out.write(b"x" * 1_000_000)
            out.write(b'"}\n{"id": 3, "prompt": "c", "max_tokens": 1}\n')
        result = self.job(path, "--temperature", "0", expect=3)
        self.assertEqual([row["error"] and row["error"]["code"] for row in result.rows], [None, "record_too_large", None])
        small = self.job([{"id": 1, "prompt": "a", "max_tokens": 1}], "--temperature", "0")
        grown = max(result.figures("peak_resident_bytes")) - max(small.figures("peak_resident_bytes"))
        self.assertLess(grown, 64 << 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
