"""NaN and infinite logits cost the row they come from, never a neighbour, also when its KV blocks are used again."""
import json
import shutil
import struct
import unittest

from harness import DATA, Case

POISONED = 300  # a token id


class NonFinite(Case):
    def poisoned_model(self, value):
        """tiny-mha (untied) with `value` (bfloat16 bits) all over one token's embedding."""
        target = self.dir / f"model-{value:x}"
        shutil.copytree(DATA / "models" / "tiny-mha", target)
        path = target / "model.safetensors"
        data = bytearray(path.read_bytes())
        header_bytes = struct.unpack("<Q", data[:8])[0]
        tensor = json.loads(data[8:8 + header_bytes])["model.embed_tokens.weight"]
        self.assertEqual(tensor["dtype"], "BF16")
        hidden = tensor["shape"][1]
        start = 8 + header_bytes + tensor["data_offsets"][0] + POISONED * hidden * 2
        data[start:start + hidden * 2] = struct.pack("<H", value) * hidden
        path.write_bytes(data)
        return str(target)

    def rows(self, with_poison):
        rows = []
        for number in range(24):
            ids = [(number * 7 + i * 3) % 290 + 4 for i in range(5 + number)]
            if with_poison and number % 3 == 1:
                ids[len(ids) // 2] = POISONED
            rows.append({"id": number, "prompt_token_ids": ids, "max_tokens": 12, "ignore_eos": True, "temperature": 0})
        return rows

    def test_only_the_rows_that_read_it_fail(self):
        for value, name in [(0x7FC0, "NaN"), (0x7F80, "infinity")]:
            model = self.poisoned_model(value)
            clean = self.job(self.rows(False), model=str(DATA / "models" / "tiny-mha")).rows
            # Few blocks: those of failed rows are used again at once. Exit code 3: more rows failed than allowed.
            for flags in (["--max-num-seqs", "24"], ["--max-num-seqs", "2", "--num-gpu-blocks-override", "8"]):
                rows = self.job(self.rows(True), *flags, model=model, expect=3).rows
                for row, want in zip(rows, clean, strict=True):
                    with self.subTest(value=name, flags=flags, row=row["id"]):
                        if row["id"] % 3 == 1:
                            self.assertEqual(row["outputs"], [])
                            self.assertEqual(row["error"]["code"], "internal")
                            self.assertIn("NaN", row["error"]["message"])
                        else:
                            self.assertEqual(row["outputs"], want["outputs"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
