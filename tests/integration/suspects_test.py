"""A row that brings the program down: by a preloaded library, when it begins to be computed."""
import os
import unittest

from harness import TINY, Case, environment, tokenmill

ROWS = [{"id": f"row {i}", "prompt": f"{i} mills", "max_tokens": 3 + i % 9, "temperature": 0.9, "ignore_eos": True}
        for i in range(40)]
POISON = 17


class Suspects(Case):
    def run_job(self, ranks, fault="", *flags):
        env = environment(**({"LD_PRELOAD": os.environ["TOKENMILL_FAULTS"], "TOKENMILL_FAULT": fault} if fault else {}))
        result = tokenmill("run", "--model", TINY, "--input", self.rows, "--output", self.dir / "out", "--max-num-seqs", 4,
                           "--commit-seconds", 0.05, *flags, ranks=ranks, env=env)
        result.output = self.dir / "out"
        return result

    def test_row_that_brings_the_program_down(self):
        self.rows = self.write("in.jsonl", ROWS)
        undisturbed = self.job(self.rows)
        for ranks, flags in ((2, ()), (2, ("-pp", "2")), (0, ())):
            with self.subTest(ranks=ranks, flags=flags):
                code = 139 if ranks else -11
                first = self.run_job(ranks, f"segv:{POISON}", "--restart", *flags)
                self.assertEqual(first.code, code, first.stderr)
                second = self.run_job(ranks, f"segv:{POISON}", *flags)
                self.assertEqual(second.code, code, second.stderr)
                self.assertIn("rows were being computed when a process died", second.stderr)
                third = self.run_job(ranks, f"segv:{POISON}", *flags)
                self.assertEqual(third.code, 3, third.stderr)  # an error more than allowed
                rows = third.rows
                self.assertEqual(rows[POISON]["id"], f"row {POISON}")
                self.assertEqual(rows[POISON]["error"]["code"], "internal")
                self.assertIn("died 2 times", rows[POISON]["error"]["message"])
                for row, expected in zip(rows, undisturbed.rows, strict=True):
                    if row["id"] != rows[POISON]["id"]:
                        self.assertEqual(row, expected)
                self.assertEqual(self.run_job(ranks, "", *flags, "--retry-errors").code, 0)
                self.assertEqual(third.bytes, undisturbed.bytes)


if __name__ == "__main__":
    unittest.main()
