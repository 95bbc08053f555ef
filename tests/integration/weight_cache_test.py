"""--weight-cache: a second run takes the weights that the first has packed, and nothing in the directory can change an answer or
end a run."""
import os
import re
import unittest

from harness import Case

ROWS = [{"prompt_token_ids": [i + 4, 9, 30 + i], "max_tokens": 6, "ignore_eos": True} for i in range(6)]
FLAGS = ["--temperature", "0", "--num-gpu-blocks-override", "16", "--max-num-seqs", "4", "--threads", "1"]
LAYOUTS = {1: [], 2: [], 4: ["--tensor-parallel-size", "2"]}


class WeightCache(Case):
    def run_with(self, cache, ranks, *flags):
        """Returns the answers, standard error and what run.yaml says of all ranks' loading."""
        result = self.job(ROWS, *FLAGS, *LAYOUTS[ranks], *(["--weight-cache", cache] if cache else []), *flags, ranks=ranks)
        text = (result.output / "run.yaml").read_text()
        loading = text[text.index("\nloading:"):]
        names = ("bytes_read", "cache_bytes_read", "cache_bytes_written")
        return result.bytes, result.stderr, [int(re.search(rf"\b{name}: (\d+)", loading)[1]) for name in names], text

    def test_a_second_run_reads_no_checkpoint_and_gives_the_same_bytes(self):
        for ranks in LAYOUTS:
            with self.subTest(ranks=ranks):
                cache = self.dir / f"cache{ranks}"
                plain, _, (read, from_cache, to_cache), _ = self.run_with(None, ranks)
                self.assertGreater(read, 0)
                self.assertEqual((from_cache, to_cache), (0, 0))
                first, errors, (read_first, from_cache, kept), _ = self.run_with(cache, ranks)
                self.assertEqual((first, read_first, from_cache), (plain, read, 0), errors)
                self.assertGreater(kept, 0)
                self.assertEqual(len(list(cache.iterdir())), 2 if ranks == 4 else 1, "one file per part")
                second, errors, figures, text = self.run_with(cache, ranks)
                self.assertEqual((second, figures), (plain, [0, kept, 0]), errors)
                self.assertNotIn("warning", errors)
                for name in ("open", "load", "load_read", "load_pack", "load_wait", "load_cache", "allocate", "index",
                             "to_first_step"):
                    self.assertRegex(text, rf"\n  {name}: [0-9.e-]+\n")

    def test_another_dtype_or_layout_takes_nothing_from_the_files_there(self):
        cache = self.dir / "cache"
        self.run_with(cache, 1, "--dtype", "float32")
        for flags in (["--dtype", "bfloat16"], ["--dtype", "float32", "--tp-invariant", "2"]):
            _, errors, (read, from_cache, _), _ = self.run_with(cache, 1, *flags)
            self.assertGreater(read, 0, flags)
            self.assertEqual(from_cache, 0, flags)
            self.assertNotIn("warning", errors)

    def test_files_that_are_not_what_they_should_be_are_named_and_written_again(self):
        cache = self.dir / "cache"
        plain, _, (_, _, kept), _ = self.run_with(cache, 2)
        [file] = cache.iterdir()
        good = file.read_bytes()
        front = len(good) - kept
        bad = {"cut off": good[:-1], "empty": b"", "half": good[:len(good) // 2], "no weights": b"GGUF" + good[4:],
               "flipped in the payload": good[:front + 5000] + bytes([good[front + 5000] ^ 16]) + good[front + 5001:],
               "flipped in the header": good[:40] + bytes([good[40] ^ 1]) + good[41:],
               "another version": good[:8] + b"\x02" + good[9:], "longer": good + b"\0"}
        for name, content in bad.items():
            with self.subTest(name):
                file.write_bytes(content)
                answers, errors, (read, from_cache, written), _ = self.run_with(cache, 2)
                self.assertEqual((answers, from_cache, written), (plain, 0, kept), errors)
                self.assertGreater(read, 0)
                self.assertIn(f"--weight-cache: {file}: ", errors)
                self.assertEqual(file.read_bytes(), good)

    def test_what_cannot_be_read_or_written_is_a_warning(self):
        plain, _, (read, _, _), _ = self.run_with(None, 2)
        in_place = self.dir / "in_place"
        self.run_with(in_place, 2)
        [file] = in_place.iterdir()
        file.unlink()
        file.mkdir()
        pipe = self.dir / "pipe"
        pipe.mkdir()
        os.mkfifo(pipe / file.name)
        wrong = {in_place: str(file), pipe: str(pipe / file.name), self.write("file", "mine"): str(self.dir / "file"),
                 "/proc/nothing": "/proc/nothing", "/proc": " are free there"}
        for cache, told in wrong.items():
            with self.subTest(cache=cache):
                answers, errors, figures, _ = self.run_with(cache, 2)
                self.assertEqual((answers, figures), (plain, [read, 0, 0]), errors)
                self.assertIn("--weight-cache: ", errors)
                self.assertIn(told, errors)
        self.assertEqual((self.dir / "file").read_text(), "mine")

    def test_without_the_option_nothing_is_written(self):
        before = sorted(os.listdir(self.dir))
        self.run_with(None, 1)
        self.assertEqual(sorted(os.listdir(self.dir)), sorted([*before, "in1.jsonl", "out1"]))


if __name__ == "__main__":
    unittest.main()
