"""Memory is bounded by queues, not by the number of rows or the length of one."""
import os
import unittest

from harness import Case

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
