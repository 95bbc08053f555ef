"""HDF5 files written and read as users do, with h5py and h5dump: rows in, results out."""
import fcntl
import os
import subprocess
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


def with_nul(group, name):
    """Texts of a column, U+0000 put back."""
    texts = list(group[name].asstr()[:])
    if f"{name}_nul" in group:
        for entry, character in group[f"{name}_nul"][:].reshape(-1, 2):
            assert texts[entry][character] == "\ufffd"
            texts[entry] = texts[entry][:character] + "\0" + texts[entry][character + 1:]
    return texts


class Output(Case):
    def check_scores(self, group, entry, expected, first=0):
        """expected: native logprobs of one entry, as JSONL holds them; first: of its positions."""
        begin, end = group["offsets"][entry:entry + 2]
        found = list(zip(group["positions"][begin:end], group["ids"][begin:end], group["ranks"][begin:end],
                         group["values"][begin:end]))
        wanted = [(first + i, score["id"], score["rank"], np.float32(score["logprob"]))
                  for i, position in enumerate(expected) for score in [position, *position.get("top", [])]]
        self.assertEqual(found, wanted)

    def check_equal(self, result):
        """Every row of output.h5 says what output.jsonl says."""
        with h5py.File(result.output / "output.h5") as file:
            rows, samples = file["rows"], file["samples"]
            ids, text = with_nul(rows, "id"), with_nul(samples, "text")
            stop_reason = with_nul(samples, "stop_reason")
            self.assertEqual(len(ids), len(result.rows))
            entry = 0
            for number, row in enumerate(result.rows):
                kind = int(rows["id_kind"][number])
                self.assertEqual(ids[number] if kind == 1 else int(ids[number]), row["id"])
                error = row["error"] or {"code": "", "message": "", "field": ""}
                self.assertEqual([rows[f"error_{key}"].asstr()[number] for key in ("code", "message", "field")],
                                 [error["code"], error["message"], error["field"] or ""])
                usage = row["usage"] or {"prompt_tokens": 0, "completion_tokens": 0}
                self.assertEqual({key: rows[key][number] for key in usage}, usage)
                self.assertEqual((rows["first_sample"][number], rows["num_samples"][number]),
                                 (entry, len(row["outputs"])))
                if "prompt_logprobs" in row:
                    self.check_scores(rows["prompt_logprobs"], number, row["prompt_logprobs"][1:], first=1)
                for output in row["outputs"]:
                    self.assertEqual((samples["row"][entry], samples["index"][entry], text[entry],
                                      samples["finish_reason"].asstr()[entry], samples["cumulative_logprob"][entry]),
                                     (number, output["index"], output["text"], output["finish_reason"],
                                      output["cumulative_logprob"]))
                    reason, token = output["stop_reason"], samples["stop_token_id"][entry]
                    self.assertEqual(stop_reason[entry], "" if reason is None else str(reason))
                    self.assertEqual(token, reason if isinstance(reason, int) else -1)
                    begin, end = samples["token_ids/offsets"][entry:entry + 2]
                    self.assertEqual(list(samples["token_ids/values"][begin:end]), output.get("token_ids", []))
                    self.check_scores(samples["logprobs"], entry, output.get("logprobs", []))
                    entry += 1
            self.assertEqual(len(text), entry)
            for path in ("samples/token_ids", "samples/logprobs"):
                self.assertEqual(file[path]["offsets"][-1], len(file[path]["values"]))

    ROWS = [{"id": "plain", "prompt": "The Sun is"},
            {"id": "n", "prompt": "one two", "n": 3, "temperature": 1, "seed": 5, "return_token_ids": True, "logprobs": 2},
            {"id": 18446744073709551617, "prompt": "x", "temperature": 9},
            {"id": "0123", "prompt": "caf\u00e9", "prompt_logprobs": 1, "max_tokens": 2},
            {"id": "zero\0id", "prompt": "left\0right", "trace_decode_token_ids": [65, 0, 66, 0], "max_tokens": 4},
            {"id": 4, "prompt": "a b", "max_tokens": 9, "stop_token_ids": [32, 262], "logprobs": 0},
            {"id": 5, "prompt": "x", "max_tokens": 0, "prompt_logprobs": 0},
            {"id": "last", "prompt": ""}]

    def test_tables_say_what_the_lines_say(self):
        flags = [*FAST, "--output-format", "jsonl,hdf5"]
        result = self.job(self.ROWS, *flags, expect=3)
        self.check_equal(result)
        again = self.job(self.dir / "in1.jsonl", *flags, "--max-num-seqs", "2", ranks=2, expect=3)
        first = (result.output / "output.h5").read_bytes()
        self.assertEqual((again.output / "output.h5").read_bytes(), first, "equal results, equal bytes")
        with h5py.File(result.output / "output.h5") as file:
            self.assertEqual(file.attrs["format"], "tokenmill results 1")
            for path in ("rows/first_sample", "samples/text", "samples/token_ids/values", "samples/logprobs/values"):
                dataset = file[path]
                self.assertTrue(dataset.chunks and dataset.shuffle and dataset.compression == "gzip", path)
                self.assertTrue(dataset.attrs["about"], path)

    def test_many_rows_fill_many_chunks(self):
        rows = [{"id": number, "prompt": f"row {number}", "max_tokens": 1, "return_token_ids": True}
                for number in range(9000)]
        result = self.job(rows, "--temperature", "0", "--output-format", "jsonl", "hdf5", ranks=2)
        with h5py.File(result.output / "output.h5") as file:
            self.assertEqual(list(file["samples/text"].asstr()[:]), [row["outputs"][0]["text"] for row in result.rows])
            self.assertEqual(list(file["rows/id"].asstr()[:]), [str(number) for number in range(9000)])
            values = file["samples/token_ids/values"][:]
            self.assertEqual(list(values), [row["outputs"][0]["token_ids"][0] for row in result.rows])

    def test_openai_answers(self):
        def row(number, url, **body):
            return {"custom_id": f"c{number}", "method": "POST", "url": url, "body": {"model": "m", **body}}
        chat, text = "/v1/chat/completions", "/v1/completions"
        rows = [row(0, text, prompt="The Sun", logprobs=2, return_token_ids=True, n=2, temperature=1, seed=3),
                row(1, text, prompt="x", temperature=9),
                row(2, text, prompt="one", prompt_logprobs=1),
                row(3, chat, messages=[{"role": "user", "content": "hi"}], logprobs=True, top_logprobs=2,
                    return_tokens_as_token_ids=True)]
        model = os.environ["TOKENMILL_TEST_DATA"] + "/models/tiny-llama3"
        result = self.job(rows, *FAST, "--output-format", "jsonl,hdf5", model=model, expect=3)
        with h5py.File(result.output / "output.h5") as file:
            table, samples = file["rows"], file["samples"]
            self.assertEqual(list(table["id"].asstr()[:]), ["c0", "c1", "c2", "c3"])
            bodies = [row["response"]["body"] for row in result.rows]
            self.assertEqual(list(table["error_message"].asstr()[:]),
                             [body.get("error", {}).get("message", "") for body in bodies])
            choices = [choice for body in bodies for choice in body.get("choices", [])]
            self.assertEqual(list(samples["text"].asstr()[:]),
                             [choice["text"] if "text" in choice else choice["message"]["content"] for choice in choices])
            self.assertEqual(list(table["num_samples"]), [len(body.get("choices", [])) for body in bodies])
            scores = samples["logprobs"]
            for entry, choice in enumerate(choices[:2]):
                begin, end = scores["offsets"][entry:entry + 2]
                own = np.flatnonzero(np.diff(scores["positions"][begin:end], prepend=-1)) + begin
                self.assertEqual([scores["values"][at] for at in own],
                                 [np.float32(value) for value in choice["logprobs"]["token_logprobs"]])
                self.assertEqual([scores["ids"][at] for at in own], choice["token_ids"])
            last = scores["offsets"][len(choices) - 1]
            content = choices[-1]["logprobs"]["content"]
            self.assertEqual(f"token_id:{scores['ids'][last]}", content[0]["token"])

    def test_hdf5_alone_and_h5dump_reads_it(self):
        result = self.job(self.ROWS, *FAST, "--output-format", "hdf5", expect=3)
        self.assertFalse((result.output / "output.jsonl").exists())
        dump = subprocess.run(["h5dump", "-d", "/samples/text", result.output / "output.h5"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(dump.returncode, 0, dump.stderr)
        self.assertIn("H5T_CSET_UTF8", dump.stdout)
        everything = subprocess.run(["h5dump", result.output / "output.h5"], capture_output=True, check=False)
        self.assertEqual(everything.returncode, 0, everything.stderr)
        self.assertIn("hdf5", (result.output / "run.yaml").read_text())

    def test_a_job_without_rows(self):
        result = self.job(self.write("none.jsonl", b""), "--output-format", "jsonl,hdf5")
        with h5py.File(result.output / "output.h5") as file:
            self.assertEqual((len(file["rows/id"]), list(file["samples/token_ids/offsets"])), (0, [0]))

    def test_results_are_prompts_of_the_next_job(self):
        flags = [*FAST, "--output-format", "hdf5"]
        first = self.job([{"prompt": "The Sun", "return_token_ids": True}, {"prompt": "y", "return_token_ids": True}], *flags)
        path = first.output / "output.h5"
        second = self.job(f"{path}:/samples/token_ids", *FAST, "--input-ids", "/samples/row")
        with h5py.File(path) as file:
            lengths = list(np.diff(file["samples/token_ids/offsets"][:]))
        self.assertEqual([row["usage"]["prompt_tokens"] for row in second.rows], lengths)

    def test_unknown_formats_are_refused(self):
        for value in ("csv", "jsonl,", "jsonl,json"):
            self.assertRegex(self.job(self.ROWS, "--output-format", value, expect=2).stderr,
                             r"--output-format is .*; it must be one of jsonl, hdf5")


if __name__ == "__main__":
    unittest.main()
