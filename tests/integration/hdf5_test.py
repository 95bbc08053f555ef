"""HDF5 files written and read as users do, with h5py and h5dump: rows in, results out."""
import fcntl
import json
import os
import sys
import unittest

if os.environ.get("TOKENMILL_H5PY") is None and sys.executable != "/usr/bin/python3":
    try:
        import h5py
    except ImportError:  # Debian's python3-h5py belongs to Debian's Python, whichever comes first in PATH
        os.execve("/usr/bin/python3", ["/usr/bin/python3", *sys.argv], os.environ | {"TOKENMILL_H5PY": "debian"})
import h5py
import numpy as np

from harness import Case, environment, tokenmill

FAST = ["--max-tokens", "3", "--temperature", "0"]
PROMPTS = ["The Sun is", "a \"quoted\" \\ line\n", "na\u00efve \u2603", "", "one two three"]
IDS = ["a", "b\u00e9", "c\"", "d", "e"]


class Input(Case):
    def file(self, name, **datasets):
        path = self.dir / name
        with h5py.File(path, "w") as file:
            for key, value in datasets.items():
                if isinstance(value, dict):
                    file.create_dataset(key, **value)
                else:
                    file[key] = value
        return path

    def h5(self, path, dataset, *flags, **options):
        return self.job(f"{path}:/{dataset}", *FAST, *flags, **options)

    def expected(self, rows, path, dataset):
        """What the same rows give as JSONL, with the place that an error's message names."""
        result = self.job(rows, *FAST, expect=3)
        return result.bytes.replace(f"in{self.runs}.jsonl:".encode(), f"{path}:/{dataset}:".encode())

    def same_rows(self, bytes_, expected):
        clean = lambda text: text.replace(str(self.dir).encode() + b"/", b"")
        self.assertEqual(clean(bytes_), clean(expected))

    def test_strings_are_the_rows_that_jsonl_gives(self):
        text = h5py.string_dtype()
        path = self.file("in.h5", ids={"data": IDS, "dtype": text}, vlen={"data": PROMPTS, "dtype": text},
                         packed={"data": PROMPTS, "dtype": text, "chunks": (2,), "compression": "gzip"},
                         fixed={"data": np.array([prompt.encode() for prompt in PROMPTS]), "chunks": (3,),
                                "compression": "gzip", "shuffle": True, "fletcher32": True},
                         ascii={"data": [b"x", b"yy"], "dtype": h5py.string_dtype("ascii")})
        rows = [{"id": id, "prompt": prompt} for id, prompt in zip(IDS, PROMPTS)]
        for dataset in ("vlen", "packed", "fixed"):
            for ranks in (0, 4) if dataset == "vlen" else (0,):
                result = self.h5(path, dataset, "--input-ids", "/ids", expect=3, ranks=ranks)
                self.same_rows(result.bytes, self.expected(rows, path, dataset))
        self.assertEqual([row["id"] for row in self.h5(path, "ascii").rows], [0, 1])

    def test_ragged_token_ids(self):
        prompts = [[5, 6, 7], [], [300, 2], list(range(3, 40))]
        ids = [1, 2**64 - 1, 3, 4]
        path = self.file("in.h5", **{"tok/values": np.array(sum(prompts, []), "i4"), "ids": np.array(ids, "u8"),
                                     "tok/offsets": np.cumsum([0] + [len(prompt) for prompt in prompts])})
        rows = [{"id": id, "prompt_token_ids": prompt} for id, prompt in zip(ids, prompts)]
        result = self.h5(path, "tok", "--input-ids", "ids", expect=3)
        self.same_rows(result.bytes, self.expected(rows, path, "tok"))

    def test_several_files_and_jsonl_together(self):
        for name in ("p1.h5", "p2.h5"):
            self.file(name, texts=PROMPTS[:3], ids=[f"{name}-{i}" for i in range(3)])
        lines = self.write("more.jsonl", [{"id": "last", "prompt": "x"}])
        output = self.dir / "out"
        result = tokenmill("run", "--model", os.environ["TOKENMILL_TEST_DATA"] + "/models/tiny-llama", "--output",
                           output, "--input", f"{self.dir}/p*.h5:/texts", lines, "--input-ids", "/ids", *FAST)
        self.assertEqual(result.code, 0, result.stderr)
        result.output = output
        self.assertEqual([row["id"] for row in result.rows],
                         [f"p{n}.h5-{i}" for n in (1, 2) for i in range(3)] + ["last"])

    def test_what_is_wrong_is_named(self):
        path = self.file("in.h5", floats=np.zeros(3), texts=PROMPTS, short=["a"], square=np.zeros((2, 2), "i4"),
                         packed={"data": np.array([b"a", b"b"])},
                         **{"bad/values": np.arange(10), "bad/offsets": np.array([0, 5, 3, 10])})
        with h5py.File(path, "a") as file:  # a filter that this library lacks, as h5py would have left it
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((2,))
            properties.set_filter(32004, h5py.h5z.FLAG_OPTIONAL, (0,))
            h5py.h5d.create(file.id, b"lz4", h5py.h5t.py_create(np.dtype("S4")), h5py.h5s.create_simple((2,)),
                            properties)
        cut = self.write("cut.h5", path.read_bytes()[:-900])
        for dataset, flags, code, text in (
                ("floats", [], 2, r"in\.h5:/floats: holds floating-point numbers"),
                ("nothing", [], 2, r"in\.h5:/nothing: cannot be opened: .* the file has /bad \(group\), /floats"),
                ("square", [], 2, r"/square: has 2 dimensions; it must have one"),
                ("texts", ["--input-ids", "/short"], 2, r"/short: has 1 ids, and .*/texts has 5 rows"),
                ("lz4", [], 2, r"/lz4: is packed with filter 32004 \(.*\), which this HDF5 library does not have"),
                ("bad", [], 4, r"/bad/offsets: number 2 is 3; offsets must ascend")):
            self.assertRegex(self.h5(path, dataset, *flags, expect=code).stderr, text)
        self.assertRegex(self.h5(cut, "texts", expect=4).stderr, r"cut\.h5: this HDF5 file is damaged or cut off")
        self.assertRegex(self.job(path, expect=2).stderr, r"in\.h5: is an HDF5 file; name what in it holds the prompts")
        rows = self.write("rows.jsonl", [{"prompt": "x"}])
        self.assertRegex(self.h5(rows, "x", expect=2).stderr, r"rows\.jsonl: is not an HDF5 file")
        self.assertRegex(self.job(rows, "--input-ids", "/x", expect=2).stderr, r"--input-ids /x names ids in HDF5")

    def test_a_locked_file_is_one_message(self):
        path = self.file("in.h5", texts=PROMPTS[:2])
        with open(path, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            stderr = self.h5(path, "texts", expect=4, ranks=4).stderr
            self.assertEqual(stderr.count("HDF5_USE_FILE_LOCKING=FALSE"), 1, stderr)
            self.assertRegex(stderr, r"in\.h5: another process holds this HDF5 file locked")
            self.assertNotIn("HDF5-DIAG", stderr)
            free = self.h5(path, "texts", ranks=4, env=environment(HDF5_USE_FILE_LOCKING="FALSE"))
        self.assertEqual(len(free.rows), 2)
        self.assertEqual(self.h5(path, "texts", ranks=4).bytes, free.bytes)


if __name__ == "__main__":
    unittest.main()
