"""What scripts/gpu_check measures, held against its targets."""
import csv
import dataclasses
import json
import statistics

# The shapes of Llama-3.1-8B. bench takes prompts of random ids, so no tokenizer is needed.
LLAMA_8B = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
            "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "bos_token_id": 128000, "eos_token_id": 128001}
# The same in small, for an emulated device.
LLAMA_TINY = LLAMA_8B | {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2}

DECODE_OF_COPY, PREFILL_OF_GEMM, STEP_OVER_KERNELS = 0.85, 0.60, 1.10


@dataclasses.dataclass
class Target:
    """measured None: not measured, for the reason in note."""
    name: str
    wanted: float
    measured: float | None
    at_least: bool = True
    note: str = ""

    @property
    def is_met(self):
        if self.measured is None:
            return None
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted

    def line(self):
        sign = ">=" if self.at_least else "<="
        if self.measured is None:
            return f"not measured  {self.name} ({sign} {self.wanted:.2f}): {self.note}"
        by = "" if self.is_met else f", missed by {abs(self.measured - self.wanted):.3f}"
        return f"{'met' if self.is_met else 'MISSED':<12}  {self.name}: {self.measured:.3f}, wanted {sign} {self.wanted:.2f}{by}"

    def as_json(self):
        return dataclasses.asdict(self) | {"is_met": self.is_met}


def kernel_targets(figures):
    """Of bench kernels --output-json: bytes of keys and values a second against copying, operations against GEMM's peak."""
    limits, targets = figures["limits"], []
    for result in figures["results"]:
        if result["dtype"] != "bfloat16":
            continue
        if result["operation"] == "attention_decode":
            targets.append(Target(f"decode attention over copy bandwidth, {result['shape']}", DECODE_OF_COPY,
                                  result["gbps"] / limits["copy_gbps"]))
        if result["operation"] == "attention_prefill":
            targets.append(Target(f"prefill attention over bf16 GEMM peak, {result['shape']}", PREFILL_OF_GEMM,
                                  result["gflops"] / limits["bf16_gflops"]))
    return targets


def gemm_lines(figures):
    """Of each matrix the largest number of rows, beside the measured peak."""
    peak = figures["limits"]["bf16_gflops"]
    best = {}
    for result in figures["results"]:
        if result["operation"] == "linear" and result["dtype"] == "bfloat16":
            rows, matrix = result["shape"].split(", ", 1)
            count = int(rows.split()[1])
            if count >= best.get(matrix, (0,))[0]:
                best[matrix] = (count, result["gflops"])
    return [f"linear, {matrix}, {rows} rows: {gflops / 1e3:.0f} TFLOP/s, {gflops / peak:.2f} of the peak"
            for matrix, (rows, gflops) in best.items()]


def decode_step_s(lines, sequences):
    """Of an iteration log: the median time from one result to the next, of steps that decode so many sequences."""
    steps = [json.loads(line) for line in lines]
    ends = [step["time_s"] + step["step_s"] for step in steps]
    times = [ends[i] - ends[i - 1] for i in range(1, len(steps))
             if all(s["sequences"] == s["tokens"] == sequences for s in (steps[i - 1], steps[i]))]
    return statistics.median(times) if times else None


def kernels_of_a_step_s(text, num_layers):
    """Of ncu's CSV of kernel times: the median sum over the kernels of one step, which is what lies between a launch of the
    rotation, one a layer, and the num_layers-th after it. None where no whole step was recorded."""
    rows = text[text.index('"ID"'):].splitlines() if '"ID"' in text else []
    kernels = [(row["Kernel Name"], float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]])
               for row in csv.DictReader(rows) if row.get("Metric Name") == "gpu__time_duration.sum"]
    places = [i for i, (name, _) in enumerate(kernels) if "rope_and_store" in name]
    sums = [sum(time for _, time in kernels[begin:end]) for begin, end in zip(places, places[num_layers:])]
    return statistics.median(sums) if sums else None


UNITS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3, "second": 1.0, "s": 1.0}


def step_target(step_s, kernels_s, note):
    """note: why one of the two was not measured."""
    ratio = step_s / kernels_s if step_s and kernels_s else None
    return Target("replayed decode step over the sum of its kernels", STEP_OVER_KERNELS, ratio, at_least=False, note=note)
