"""--stage-dir: the model's files are copied once per node, what is there is kept when every byte is right, and nothing in the
directory can change an answer."""
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import DATA, TINY, Case

ROWS = [{"prompt_token_ids": [i + 4, 9, 30 + i], "max_tokens": 6, "ignore_eos": True} for i in range(4)]
FLAGS = ["--temperature", "0", "--num-gpu-blocks-override", "16", "--max-num-seqs", "4", "--threads", "1"]


class StageDir(Case):
    def run_with(self, *flags, model=TINY, **options):
        """Returns the answers and the bytes that were copied and found, as the program says."""
        rows = self.dir / "rows.jsonl"
        if not rows.exists():
            self.write(rows.name, ROWS)
        result = self.job(rows, *FLAGS, *flags, model=model, **options)
        said = re.search(r"model staged in (.*): (.*) copied, (.*) were there", result.stderr)
        return result, said.groups() if said else None

    def staged(self, stage):
        [directory] = stage.iterdir()
        return directory

    def test_files_are_copied_once_and_read_from_there(self):
        stage = self.dir / "node" / "scratch"
        plain, said = self.run_with()
        self.assertIsNone(said)
        model = self.dir / "tiny-llama"
        shutil.copytree(TINY, model)
        (model / "pytorch_model.bin").write_bytes(b"not needed")
        first, (path, copied, kept) = self.run_with("--stage-dir", stage, model=model, ranks=2)
        self.assertEqual((first.bytes, kept), (plain.bytes, "0 B"))
        directory = self.staged(stage)
        self.assertEqual(pathlib.Path(path), directory)
        names = {file.name for file in directory.iterdir() if not file.name.endswith(".staged")}
        self.assertEqual(names, {file.name for file in pathlib.Path(TINY).iterdir()})
        self.assertRegex((first.output / "run.yaml").read_text(), r"\n  stage: [0-9.e-]+\n")
        again, (_, copied_again, kept) = self.run_with("--stage-dir", stage, model=model, ranks=2)
        self.assertEqual((again.bytes, copied_again, kept), (plain.bytes, "0 B", copied))
        for other in (plain, again):
            self.assertEqual(other.output.joinpath("journal/identity").read_text(),
                             first.output.joinpath("journal/identity").read_text(), "where files lie decides nothing")

    def test_what_is_not_right_there_is_copied_again(self):
        stage = self.dir / "stage"
        plain, _ = self.run_with("--stage-dir", stage)
        directory = self.staged(stage)
        weights = next(directory.glob("*.safetensors"))
        good = weights.read_bytes()
        (directory / f"{weights.name}.tmp.999999999").write_bytes(b"left by a killed run")
        for name, content in {"flipped": good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], "cut": good[:-1],
                              "empty": b"", "longer": good + b"\0", "gone": None}.items():
            with self.subTest(name):
                weights.unlink()
                if content is not None:
                    weights.write_bytes(content)
                again, (_, copied, _) = self.run_with("--stage-dir", stage)
                self.assertNotEqual(copied, "0 B")
                self.assertEqual((again.bytes, weights.read_bytes()), (plain.bytes, good))
        self.assertEqual(list(directory.glob("*.tmp.*")), [])

    def test_a_changed_model_is_staged_beside_the_old_one(self):
        stage, model = self.dir / "stage", self.dir / "model"
        shutil.copytree(TINY, model)
        self.run_with("--stage-dir", stage, model=model)
        other = DATA / "models" / "tiny-qwen3"
        shutil.rmtree(model)
        shutil.copytree(other, model)
        plain, _ = self.run_with(model=other)
        changed, (_, _, kept) = self.run_with("--stage-dir", stage, model=model)
        self.assertEqual((changed.bytes, kept, len(list(stage.iterdir()))), (plain.bytes, "0 B", 2))

    def test_a_gguf_file(self):
        gguf = next((DATA / "models" / "gguf").glob("*.gguf"))
        plain, _ = self.run_with(model=gguf)
        staged, (path, _, _) = self.run_with("--stage-dir", self.dir / "stage", model=gguf)
        self.assertEqual(staged.bytes, plain.bytes)
        self.assertEqual(pathlib.Path(path).read_bytes(), gguf.read_bytes())

    def test_a_directory_that_cannot_be_used_is_named(self):
        file = self.write("file", b"")
        result, _ = self.run_with("--stage-dir", file, expect=4, ranks=2)
        self.assertRegex(result.stderr, r"error\[io\] .*--stage-dir: .*file")
        full, _ = self.run_with("--stage-dir", "/proc/none", expect=4)
        self.assertRegex(full.stderr, r"error\[io\] --stage-dir: .*/proc/none")

    def test_too_little_room_is_said_before_anything_is_copied(self):
        small = self.dir / "small"
        small.mkdir()
        mounts = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=100k none {small} && exec "$@"', "sh"]
        if subprocess.run([*mounts, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("cannot mount a small file system")
        result, _ = self.run_with("--stage-dir", small, expect=4, launcher=mounts)
        self.assertRegex(result.stderr, rf"error\[io\] --stage-dir: {small}/\S+ on \S+: the model needs .* there and .* are free")


if __name__ == "__main__":
    unittest.main()
