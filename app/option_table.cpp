#include "app/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "kernels/core/error.h"

// A table, and as long as one: one row per option, in the order of --help.
namespace tokenmill::app {
namespace {

using S = OptionShape;
constexpr unsigned kEngines = kRun | kBenchThroughput;
constexpr unsigned kModels = kEngines | kInspect | kTokenize;
constexpr unsigned kAll = kModels | kBenchKernels | kDiff | kMerge;
constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxShards = 99'999;            // their names have five digits
constexpr int64_t kMaxTokens = int64_t{1} << 30;  // positions are counted in int32 on devices

std::optional<DType> read_dtype(const Setting& setting) {
  const std::string word = read_word(setting, {"auto", "half", "float16", "bfloat16", "float", "float32"});
  if (word == "auto") return std::nullopt;
  if (word == "bfloat16") return DType::kBF16;
  return word == "half" || word == "float16" ? DType::kF16 : DType::kF32;
}

void read_inputs(RunOptions& options, const Setting& setting) {
  for (const std::string& value : setting.values) read_text({setting.name, {value}, setting.where});
  options.input = setting.values;
}

jobs::Shard read_shard(const Setting& setting) {
  const std::string& text = read_text(setting);
  const size_t slash = text.find('/');
  try {
    Setting number{setting.name, {text.substr(0, slash)}, setting.where};
    const int64_t index = read_integer(number, 0);
    number.values[0] = slash == text.npos ? "" : text.substr(slash + 1);
    const int64_t count = read_integer(number, index + 1, kMaxShards);
    return {index, count};
  } catch (const Error&) {
    throw Error(ErrorKind::kConfig, "{} is {}; it must be K/N, the K-th (0 to N-1) of N shards (up to {})",
                setting.where, text, kMaxShards);
  }
}

RowErrorLimit read_row_errors(const Setting& setting) {
  Setting number = setting;
  if (number.values[0].ends_with('%')) {
    number.values[0].pop_back();
    try {
      return {.percent = read_number(number, 0, 100)};
    } catch (const Error&) {
      throw Error(ErrorKind::kConfig, "{} is {}; a share must be between 0% and 100%", setting.where, setting.values[0]);
    }
  }
  try {
    return {.count = read_integer(setting, 0)};
  } catch (const Error& error) {
    throw Error(ErrorKind::kConfig, "{}, or a share of all rows such as 0.5%", error.what());
  }
}

void read_overlong(RunOptions& o, const Setting& s) {
  using rows::Overlong;
  for (const Overlong choice : {Overlong::kError, Overlong::kTruncateLeft, Overlong::kTruncateRight, Overlong::kSkip})
    if (read_word(s, {"error", "truncate-left", "truncate-right", "skip"}) == rows::to_string(choice)) o.overlong = choice;
}

void read_output_format(RunOptions& o, const Setting& s) {
  o.output_jsonl = o.output_hdf5 = false;
  o.merge.has_formats = true;
  for (const std::string& value : s.values)
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      const std::string word = read_word({s.name, {value.substr(begin, end - begin)}, s.where}, {"jsonl", "hdf5"});
      (word == "jsonl" ? o.output_jsonl : o.output_hdf5) = true;
      begin = end + 1;
    }
}

void read_hidden_states(RunOptions& o, const Setting& s) {
  const std::string word = read_word(s, {"none", "last", "mean"});
  for (const HiddenStates choice : {HiddenStates::kNone, HiddenStates::kLast, HiddenStates::kMean})
    if (word == to_string(choice)) o.hidden_states = choice;
}

void read_durability(RunOptions& o, const Setting& s) {
  using jobs::Durability;
  o.durability = read_word(s, {"disk", "system"}) == "disk" ? Durability::kDisk : Durability::kSystem;
}

void read_date(RunOptions& o, const Setting& s) {
  const std::string& text = read_text(s);
  int year = 0, month = 0, day = 0;
  char rest = 0;
  const bool ok = text.size() == 10 && std::sscanf(text.c_str(), "%4d-%2d-%2d%c", &year, &month, &day, &rest) == 3 &&
                  month >= 1 && month <= 12 && day >= 1 && day <= 31;
  if (!ok) throw Error(ErrorKind::kConfig, "{} is {}; it must be a day as YYYY-MM-DD", s.where, text);
  o.date = text;
}

void read_chunked_prefill(RunOptions& o, const Setting& s) { o.scheduler.enable_chunked_prefill = read_bool(s); }

void read_watermark(RunOptions& o, const Setting& s) { o.scheduler.watermark = read_number(s, 0, 0.5); }

void read_deterministic(RunOptions& o, const Setting& s) {
  o.deterministic = read_bool(s);
  if (!o.deterministic)
    throw Error(ErrorKind::kConfig, "{} is false; this version has only deterministic paths: leave it out", s.where);
}

// How values are shown (OptionSpec::shown); what is not set is left to the program.
using jobs::ReportValue;
constexpr std::string_view kAuto = "auto";
constexpr const char* kLogLevels[] = {"trace", "debug", "info", "warning", "error", "off"};  // of log::Level

template <typename T>
ReportValue show(const T& value) {
  return value;
}
ReportValue show(uint64_t value) { return std::to_string(value); }  // text: YAML readers take big integers for floats
template <typename T>
ReportValue show(const std::optional<T>& value) {
  return value ? show(*value) : std::string(kAuto);
}

/// The member of RunOptions at the end of these pointers.
template <auto... members>
ReportValue shown(const RunOptions& options) {
  return show((options.*....*members));
}

ReportValue show_output_format(const RunOptions& o) {
  return std::string(!o.output_hdf5 ? "jsonl" : o.output_jsonl ? "jsonl,hdf5" : "hdf5");
}

ReportValue show_row_errors(const RunOptions& o) {
  const RowErrorLimit& limit = o.max_row_errors;
  return limit.percent ? fmt::format("{}%", *limit.percent) : std::to_string(limit.count);
}

const std::vector<OptionSpec> kBeforeSampling = {
    {"model", "Model", S::kValue, "PATH", "Hugging Face directory or .gguf file", "required", kModels,
     [](RunOptions& o, const Setting& s) { o.model = read_text(s); }, shown<&RunOptions::model>},
    {"dtype", "Model", S::kValue, "NAME",
     "auto, half, bfloat16 or float (auto: the checkpoint's, bfloat16 for GGUF; half is computed in bfloat16 on CPUs, "
     "with a warning)",
     "auto", kEngines, [](RunOptions& o, const Setting& s) { o.dtype = read_dtype(s); },
     [](const RunOptions& o) -> ReportValue { return std::string(o.dtype ? to_string(*o.dtype) : kAuto); },
     Bearing::kResults},
    {"max-model-len", "Model", S::kValue, "TOKENS", "longest prompt plus answer", "the model's own", kEngines,
     [](RunOptions& o, const Setting& s) { o.max_model_len = read_integer(s, 2, kMaxTokens); },
     shown<&RunOptions::max_model_len>, Bearing::kResults},
    {"chat-template", "Model", S::kValue, "FILE", "Jinja file that replaces the checkpoint's chat template",
     "the model's own", kRun | kTokenize, [](RunOptions& o, const Setting& s) { o.chat_template = read_text(s); },
     shown<&RunOptions::chat_template>},
    {"chat-template-kwargs", "Model", S::kMap, "NAME=VALUE...",
     "template variables of chats that do not set them; values as JSON, else text (enable_thinking=false)", "none",
     kRun, [](RunOptions& o, const Setting& s) { o.chat_template_kwargs = read_variables(s); },
     [](const RunOptions& o) -> ReportValue { return io::to_json(o.chat_template_kwargs); }, Bearing::kResults},
    {"generation-config", "Model", S::kValue, "auto|none",
     "auto: sampling defaults from the model's generation_config.json; none: leave them out", "auto", kRun,
     [](RunOptions& o, const Setting& s) {
       o.use_generation_config = read_word(s, {"auto", "none", "vllm"}) == "auto";  // vllm: vLLM's word for none
     },
     [](const RunOptions& o) -> ReportValue { return std::string(o.use_generation_config ? "auto" : "none"); },
     Bearing::kResults},
    {"think-start", "Model", S::kValue, "TEXT", "marker that thinking begins with, for thinking_token_budget",
     "the vocabulary's, e.g. <think>", kRun, [](RunOptions& o, const Setting& s) { o.think_start = read_text(s); },
     shown<&RunOptions::think_start>, Bearing::kResults},
    {"think-end", "Model", S::kValue, "TEXT", "marker that thinking ends with", "the vocabulary's, e.g. </think>", kRun,
     [](RunOptions& o, const Setting& s) { o.think_end = read_text(s); }, shown<&RunOptions::think_end>,
     Bearing::kResults},
    {"date", "Model", S::kValue, "YYYY-MM-DD", "the day that strftime_now in a template shows",
     "day of the job's start", kRun | kTokenize, read_date, shown<&RunOptions::date>, Bearing::kResults},
    {"add-special-tokens", "Model", S::kSwitch, "BOOL", "start and end tokens around plain strings", "true", kTokenize,
     [](RunOptions& o, const Setting& s) { o.add_special_tokens = read_bool(s); }},

    {"input", "Rows", S::kList, "FILE...",
     "JSONL files, plain, .gz or .zst, or prompts in HDF5 files (FILE.h5:/NAME); repeatable, globs allowed", "required",
     kRun, read_inputs},
    {"input-ids", "Rows", S::kValue, "/NAME", "HDF5 inputs: the dataset of the rows' ids in each file",
     "none: ids are row numbers", kRun,
     [](RunOptions& o, const Setting& s) { o.input_ids = (read_text(s).starts_with('/') ? "" : "/") + read_text(s); },
     shown<&RunOptions::input_ids>, Bearing::kResults},
    {"output", "Rows", S::kValue, "DIR", "directory for output.jsonl and run.yaml; merge: the file to write",
     "required", kRun | kMerge, [](RunOptions& o, const Setting& s) { o.output = read_text(s); },
     shown<&RunOptions::output>},
    {"shard", "Rows", S::kValue, "K/N",
     "compute the K-th (from 0) of N equal stretches of the rows only, in a directory of its own in DIR; `merge DIR` "
     "puts them together",
     "0/1", kRun, [](RunOptions& o, const Setting& s) { o.shard = read_shard(s); },
     [](const RunOptions& o) -> ReportValue { return fmt::format("{}/{}", o.shard.index, o.shard.count); },
     Bearing::kResults},
    {"output-format", "Rows", S::kList, "FORMAT...", "jsonl (output.jsonl), hdf5 (output.h5), or both: jsonl,hdf5",
     "jsonl; merge: what the jobs were given", kRun | kMerge, read_output_format, show_output_format,
     Bearing::kSchedule},
    {"output-layout", "Rows", S::kValue, "LAYOUT",
     "merged: one output.h5 and output.jsonl, or parts: a file of each rank, written at once, which output.h5 shows as "
     "one",
     "merged", kRun,
     [](RunOptions& o, const Setting& s) {
       o.output_in_parts = read_word(s, {"merged", "parts"}) == "parts";
     },
     [](const RunOptions& o) -> ReportValue { return std::string(o.output_in_parts ? "parts" : "merged"); },
     Bearing::kSchedule},
    {"hidden-states", "Rows", S::kValue, "WHICH",
     "of each row's prompt, last layer behind the final norm, to /hidden_states of output.h5: last (token), mean (of "
     "all tokens) or none",
     "none", kRun, read_hidden_states,
     [](const RunOptions& o) -> ReportValue { return std::string(to_string(o.hidden_states)); }, Bearing::kResults},
    {"partial", "Merge", S::kSwitch, "BOOL", "leave out rows that have no result yet", "false", kMerge,
     [](RunOptions& o, const Setting& s) { o.merge.partial = read_bool(s); }},
    {"restart", "Rows", S::kSwitch, "BOOL", "begin anew: replace the results that DIR holds", "false", kRun,
     [](RunOptions& o, const Setting& s) { o.restart = read_bool(s); }, shown<&RunOptions::restart>},
    {"accept-change", "Rows", S::kSwitch, "BOOL",
     "continue the job in DIR although its inputs, model, sampling or the like have changed", "false", kRun,
     [](RunOptions& o, const Setting& s) { o.accept_change = read_bool(s); }, shown<&RunOptions::accept_change>},
    {"retry-errors", "Rows", S::kSwitch, "BOOL", "compute rows again whose result in DIR is an error", "false", kRun,
     [](RunOptions& o, const Setting& s) { o.retry_errors = read_bool(s); }, shown<&RunOptions::retry_errors>},
    {"commit-seconds", "Rows", S::kValue, "SECONDS", "finished rows reach the journal at least this often", "2", kRun,
     [](RunOptions& o, const Setting& s) { o.commit_seconds = read_number(s, 0, 3600); },
     shown<&RunOptions::commit_seconds>},
    {"durability", "Rows", S::kValue, "disk|system",
     "what rows in the journal survive: disk: the loss of a machine; system: the death of the processes", "disk", kRun,
     read_durability,
     [](const RunOptions& o) -> ReportValue {
       return std::string(o.durability == jobs::Durability::kDisk ? "disk" : "system");
     }},
    {"stall-seconds", "Rows", S::kValue, "SECONDS",
     "a step or another wait that lasts longer ends the job (exit 4), after saying which rank waits for what; 0: never",
     "1800", kRun, [](RunOptions& o, const Setting& s) { o.stall_seconds = read_number(s, 0, 1e6); },
     shown<&RunOptions::stall_seconds>},
    {"max-seconds", "Rows", S::kValue, "SECONDS",
     "time that the run has: it stops before (exit 75), and the same command goes on", "no limit", kRun,
     [](RunOptions& o, const Setting& s) { o.max_seconds = read_number(s, 1, 1e9); }, shown<&RunOptions::max_seconds>},
    {"deadline", "Rows", S::kValue, "EPOCH", "the same as a point in time, in seconds since 1970",
     "SLURM_JOB_END_TIME, or none", kRun, [](RunOptions& o, const Setting& s) { o.deadline = read_number(s, 1, 1e11); },
     shown<&RunOptions::deadline>},
    {"stop-before-seconds", "Rows", S::kValue, "SECONDS", "everything is on the disk so long before that time",
     "a thirtieth of it, 0.5 to 30", kRun,
     [](RunOptions& o, const Setting& s) { o.stop_before_seconds = read_number(s, 0, 1e6); },
     shown<&RunOptions::stop_before_seconds>},
    {"passthrough", "Rows", S::kList, "FIELD...", "unknown fields of native rows to repeat under \"input\"", "none",
     kRun, [](RunOptions& o, const Setting& s) { o.passthrough = s.values; }, shown<&RunOptions::passthrough>,
     Bearing::kResults},
    {"max-row-errors", "Rows", S::kValue, "N|P%", "failed rows up to which the job counts as done (exit 0)", "0", kRun,
     [](RunOptions& o, const Setting& s) { o.max_row_errors = read_row_errors(s); }, show_row_errors},
    {"row-metrics", "Rows", S::kSwitch, "BOOL", "write times and ranks of each row to row_metrics.jsonl", "false", kRun,
     [](RunOptions& o, const Setting& s) { o.row_metrics = read_bool(s); }, shown<&RunOptions::row_metrics>},
    {"overlong", "Rows", S::kValue, "WHAT",
     "prompts beyond the model's length: error, truncate-left or truncate-right (cut there), skip (a result that says "
     "so, "
     "no error)",
     "error", kRun, read_overlong,
     [](const RunOptions& o) -> ReportValue { return std::string(rows::to_string(o.overlong)); }, Bearing::kResults},
    {"max-logprobs", "Rows", S::kValue, "N", "most logprobs per token that a row may ask for; -1: no limit", "20", kRun,
     [](RunOptions& o, const Setting& s) { o.max_logprobs = read_integer(s, -1); }, shown<&RunOptions::max_logprobs>,
     Bearing::kResults},
    {"metrics-file", "Rows", S::kValue, "FILE", "counters in Prometheus text format, replaced every 5 s and at the end",
     "none", kRun, [](RunOptions& o, const Setting& s) { o.metrics_file = read_text(s); },
     shown<&RunOptions::metrics_file>},
    {"iteration-log", "Rows", S::kValue, "FILE",
     "one JSON line for each step; with several replicas a file each, FILE.REPLICA", "none", kEngines,
     [](RunOptions& o, const Setting& s) { o.iteration_log = read_text(s); }, shown<&RunOptions::iteration_log>},
    {"max-record-bytes", "Rows", S::kValue, "BYTES[K|M|G]", "longest input row; a longer one is an error row", "16M",
     kRun, [](RunOptions& o, const Setting& s) { o.max_record_bytes = read_bytes(s, 1024); },
     shown<&RunOptions::max_record_bytes>, Bearing::kResults},

    {"max-num-seqs", "Engine", S::kValue, "ROWS", "rows that run at once in a replica", "256", kEngines,
     [](RunOptions& o, const Setting& s) { o.max_num_seqs = read_integer(s, 1, 65536); },
     shown<&RunOptions::max_num_seqs>, Bearing::kSchedule},
    {"max-num-batched-tokens", "Engine", S::kValue, "TOKENS", "tokens of one step, at least --max-num-seqs",
     "2048", kEngines,
     [](RunOptions& o, const Setting& s) { o.max_num_batched_tokens = read_integer(s, 1, kMaxTokens); },
     shown<&RunOptions::max_num_batched_tokens>, Bearing::kSchedule},
    {"enable-chunked-prefill", "Engine", S::kSwitch, "BOOL", "spread long prompts over several steps", "true", kEngines,
     read_chunked_prefill, shown<&RunOptions::scheduler, &SchedulerOptions::enable_chunked_prefill>,
     Bearing::kSchedule},
    {"long-prefill-token-threshold", "Engine", S::kValue, "TOKENS",
     "tokens of one prompt in a step at most, so that others share it; 0: as many as fit", "0", kEngines,
     [](RunOptions& o, const Setting& s) { o.scheduler.long_prefill_token_threshold = read_integer(s, 0, kMaxTokens); },
     shown<&RunOptions::scheduler, &SchedulerOptions::long_prefill_token_threshold>, Bearing::kSchedule},
    {"max-num-partial-prefills", "Engine", S::kValue, "ROWS",
     "prompts in progress at once; 0: as many as a step's tokens allow", "0", kEngines,
     [](RunOptions& o, const Setting& s) { o.scheduler.max_num_partial_prefills = read_integer(s, 0, 65536); },
     shown<&RunOptions::scheduler, &SchedulerOptions::max_num_partial_prefills>, Bearing::kSchedule},
    {"enable-prefix-caching", "Engine", S::kSwitch, "BOOL", "compute what rows have in common at their start only once",
     "true", kEngines, [](RunOptions& o, const Setting& s) { o.scheduler.enable_prefix_caching = read_bool(s); },
     shown<&RunOptions::scheduler, &SchedulerOptions::enable_prefix_caching>, Bearing::kSchedule},
    {"watermark", "Engine", S::kValue, "SHARE", "share of the KV blocks kept free when a row enters, 0 to 0.5",
     "0.01", kEngines,
     read_watermark, shown<&RunOptions::scheduler, &SchedulerOptions::watermark>, Bearing::kSchedule},
    {"plan-window-rows", "Engine", S::kValue, "ROWS",
     "rows that a replica holds, to compute each beginning that they share once", "4096", kRun,
     [](RunOptions& o, const Setting& s) { o.plan_window_rows = read_integer(s, 1, 1 << 20); },
     shown<&RunOptions::plan_window_rows>, Bearing::kSchedule},
    {"dedup", "Engine", S::kSwitch, "BOOL",
     "compute rows with equal prompts and sampling once (greedy, or with the same seed)", "false", kRun,
     [](RunOptions& o, const Setting& s) { o.dedup = read_bool(s); }, shown<&RunOptions::dedup>, Bearing::kSchedule},
    {"block-size", "Engine", S::kValue, "TOKENS", "tokens of one KV block, a multiple of 16 up to 1024", "16", kEngines,
     [](RunOptions& o, const Setting& s) {
       o.block_size = read_integer(s, 16, 1024);
       if (o.block_size % 16 != 0)
         throw Error(ErrorKind::kConfig, "{} is {}; it must be a multiple of 16", s.where, o.block_size);
     },
     shown<&RunOptions::block_size>, Bearing::kResults},
    {"gpu-memory-utilization", "Engine", S::kValue, "SHARE",
     "share of the device's memory that the ranks on it use together for weights, activations and KV blocks",
     "0.9; CPU 0.5", kEngines,
     [](RunOptions& o, const Setting& s) { o.gpu_memory_utilization = read_number(s, 0.01, 1); },
     shown<&RunOptions::gpu_memory_utilization>},
    {"kv-cache-memory-bytes", "Engine", S::kValue, "BYTES[K|M|G]", "memory for KV blocks per rank",
     "what is left, at most what the rows can use", kEngines,
     [](RunOptions& o, const Setting& s) { o.kv_cache_memory_bytes = read_bytes(s, 1); },
     shown<&RunOptions::kv_cache_memory_bytes>},
    {"num-gpu-blocks-override", "Engine", S::kValue, "BLOCKS", "KV blocks per rank, whatever fits", "what fits",
     kEngines, [](RunOptions& o, const Setting& s) { o.num_gpu_blocks_override = read_integer(s, 1, kMaxTokens); },
     shown<&RunOptions::num_gpu_blocks_override>},
    {"seed", "Engine", S::kValue, "N", "random streams of rows without a seed of their own; -1: none, as 0", "0", kEngines,
     [](RunOptions& o, const Setting& s) { o.seed = read_seed(s); }, shown<&RunOptions::seed>, Bearing::kResults},
    {"deterministic", "Engine", S::kSwitch, "BOOL", "same bits for a row whatever runs beside it; false is refused, there is no other way", "true", kEngines,
     read_deterministic, shown<&RunOptions::deterministic>},

    {"device", "Devices and ranks", S::kValue, "NAME",
     "auto, cpu or cuda; auto is a GPU where the build and the node have one", "auto", kEngines | kBenchKernels,
     [](RunOptions& o, const Setting& s) {
       o.device = read_word(s, {"auto", "cpu", "cuda"});
     },
     shown<&RunOptions::device>},
    {"cpu-isa", "Devices and ranks", S::kValue, "NAME", "auto, avx2, avx512 or avx512_bf16", "auto",
     kEngines | kBenchKernels,
     [](RunOptions& o, const Setting& s) { o.cpu_isa = read_word(s, {"auto", "avx2", "avx512", "avx512_bf16"}); },
     shown<&RunOptions::cpu_isa>},
    {"attention-backend", "Devices and ranks", S::kValue, "NAME",
     "attention of a CUDA device: auto, reference, paged_mma or paged_wgmma", "auto", kEngines | kBenchKernels,
     [](RunOptions& o, const Setting& s) {
       o.attention_backend = read_word(s, {"auto", "reference", "paged_mma", "paged_wgmma"});
     },
     shown<&RunOptions::attention_backend>},
    {"disable-cascade-attn", "Devices and ranks", S::kSwitch, "BOOL",
     "on a CUDA device, read the keys and values of a common beginning for each row by itself; same results", "false",
     kEngines | kBenchKernels, [](RunOptions& o, const Setting& s) { o.disable_cascade_attn = read_bool(s); },
     shown<&RunOptions::disable_cascade_attn>},
    {"enforce-eager", "Devices and ranks", S::kSwitch, "BOOL",
     "launch every operation of a CUDA device by itself instead of whole steps as CUDA graphs; same results", "false",
     kEngines, [](RunOptions& o, const Setting& s) { o.enforce_eager = read_bool(s); },
     shown<&RunOptions::enforce_eager>},
    {"max-cudagraph-capture-size", "Devices and ranks", S::kValue, "N",
     "steps of up to so many tokens are recorded as CUDA graphs at the start", "512", kEngines,
     [](RunOptions& o, const Setting& s) { o.max_cudagraph_capture_size = read_integer(s, 1, kMaxTokens); },
     shown<&RunOptions::max_cudagraph_capture_size>},
    {"threads", "Devices and ranks", S::kValue, "N", "threads of each rank", "the rank's share of its cores",
     kEngines | kBenchKernels, [](RunOptions& o, const Setting& s) { o.threads = read_integer(s, 1, 4096); },
     shown<&RunOptions::threads>},
    {"tensor-parallel-size", "Devices and ranks", S::kValue, "N", "ranks that share each layer; -tp", "1", kEngines,
     [](RunOptions& o, const Setting& s) { o.tensor_parallel_size = read_integer(s, 1, kMaxRanks); },
     shown<&RunOptions::tensor_parallel_size>},
    {"pipeline-parallel-size", "Devices and ranks", S::kValue, "N", "stages that hold some of the layers each; -pp",
     "1", kEngines, [](RunOptions& o, const Setting& s) { o.pipeline_parallel_size = read_integer(s, 1, kMaxRanks); },
     shown<&RunOptions::pipeline_parallel_size>},
    {"data-parallel-size", "Devices and ranks", S::kValue, "N", "replicas; -dp", "what the ranks leave", kEngines,
     [](RunOptions& o, const Setting& s) { o.data_parallel_size = read_integer(s, 1, kMaxRanks); },
     shown<&RunOptions::data_parallel_size>},
    {"tp-invariant", "Devices and ranks", S::kValue, "N",
     "the same bits for every tensor-parallel size that divides N; costs speed; 0: each size has its own rounding", "0",
     kEngines, [](RunOptions& o, const Setting& s) { o.tp_invariant = read_integer(s, 0, kMaxRanks); },
     shown<&RunOptions::tp_invariant>},
    {"load", "Devices and ranks", S::kValue, "WAY",
     "node: each node reads the weights; broadcast: they are read once for all and passed on over the network", "node",
     kEngines,
     [](RunOptions& o, const Setting& s) {
       o.load = read_word(s, {"node", "broadcast"}) == "broadcast" ? LoadMode::kBroadcast : LoadMode::kNode;
     },
     [](const RunOptions& o) -> ReportValue {
       return std::string(o.load == LoadMode::kBroadcast ? "broadcast" : "node");
     }},
    {"load-format", "Devices and ranks", S::kValue, "FORMAT",
     "auto: the model's weights; dummy: random ones of config.json's shapes, the same every time, to measure speed",
     "auto", kEngines,
     [](RunOptions& o, const Setting& s) {
       o.load_format = read_word(s, {"auto", "dummy"}) == "dummy" ? LoadFormat::kDummy : LoadFormat::kAuto;
     },
     [](const RunOptions& o) -> ReportValue {
       return std::string(o.load_format == LoadFormat::kDummy ? "dummy" : "auto");
     },
     Bearing::kResults},
    {"stage-dir", "Devices and ranks", S::kValue, "DIR",
     "directory on each node's own disk to which the model's files are copied first, once, and kept for later runs",
     "none", kRun, [](RunOptions& o, const Setting& s) { o.stage_dir = read_text(s); }, shown<&RunOptions::stage_dir>},
    {"weight-cache", "Devices and ranks", S::kValue, "DIR",
     "directory on each node's own disk in which packed weights are kept for later runs", "none", kEngines,
     [](RunOptions& o, const Setting& s) { o.weight_cache = read_text(s); }, shown<&RunOptions::weight_cache>},
};

void read_prefix_len(RunOptions& o, const Setting& s) { o.bench.prefix_len = read_integer(s, 0, kMaxTokens); }

const std::vector<OptionSpec> kBehindSampling = {
    {"ranks", "Cluster", S::kValue, "N", "ranks that the job shall have", "as few as the layout needs", kValidate,
     [](RunOptions& o, const Setting& s) { o.validate.ranks = read_integer(s, 1, kMaxRanks); }},
    {"ranks-per-node", "Cluster", S::kValue, "N", "ranks of each node, which is taken to be like this machine",
     "all on one node", kValidate,
     [](RunOptions& o, const Setting& s) { o.validate.ranks_per_node = read_integer(s, 1, kMaxRanks); }},
    {"input-len", "Load", S::kValue, "TOKENS", "prompt tokens of each request", "256", kBenchThroughput,
     [](RunOptions& o, const Setting& s) { o.bench.input_len = read_integer(s, 1, kMaxTokens); }},
    {"output-len", "Load", S::kValue, "TOKENS", "generated tokens of each request", "128", kBenchThroughput,
     [](RunOptions& o, const Setting& s) { o.bench.output_len = read_integer(s, 1, kMaxTokens); }},
    {"num-prompts", "Load", S::kValue, "N", "requests, shared by all replicas", "64", kBenchThroughput,
     [](RunOptions& o, const Setting& s) { o.bench.num_prompts = read_integer(s, 1); }},
    {"num-warmups", "Load", S::kValue, "N", "requests that run before the clock starts", "4", kBenchThroughput,
     [](RunOptions& o, const Setting& s) { o.bench.num_warmups = read_integer(s, 0, kMaxTokens); }},
    {"repetitions", "Load", S::kValue, "N", "times that the load is measured, each with prompts of its own", "1",
     kBenchThroughput, [](RunOptions& o, const Setting& s) { o.bench.repetitions = read_integer(s, 1, 1000); }},
    {"prefix-len", "Load", S::kValue, "TOKENS", "tokens that all requests begin with, besides --input-len", "0",
     kBenchThroughput, read_prefix_len},
    {"random-prefix-len", "Load", S::kValue, "TOKENS", "the same, by vLLM's other name", "0", kBenchThroughput,
     read_prefix_len},
    {"dataset-name", "Load", S::kValue, "NAME", "random, or prefix_repetition: prompts that share one of some prefixes",
     "random", kBenchThroughput,
     [](RunOptions& o, const Setting& s) {
       o.bench.prefix_repetition = read_word(s, {"random", "prefix_repetition"}) == "prefix_repetition";
     }},
    {"prefix-repetition-prefix-len", "Load", S::kValue, "TOKENS", "prefix_repetition: tokens of each prefix", "256",
     kBenchThroughput,
     [](RunOptions& o, const Setting& s) { o.bench.repeated_prefix_len = read_integer(s, 1, kMaxTokens); }},
    {"prefix-repetition-suffix-len", "Load", S::kValue, "TOKENS", "prefix_repetition: tokens behind the prefix", "256",
     kBenchThroughput, [](RunOptions& o, const Setting& s) { o.bench.suffix_len = read_integer(s, 1, kMaxTokens); }},
    {"prefix-repetition-num-prefixes", "Load", S::kValue, "N", "prefix_repetition: prefixes", "10", kBenchThroughput,
     [](RunOptions& o, const Setting& s) { o.bench.num_prefixes = read_integer(s, 1, kMaxTokens); }},
    {"output-json", "Load", S::kValue, "FILE", "write the figures there too", "none", kBenchThroughput | kBenchKernels,
     [](RunOptions& o, const Setting& s) { o.bench.output_json = read_text(s); }},
    {"filter", "Load", S::kValue, "TEXT", "only operations whose name contains it", "all", kBenchKernels,
     [](RunOptions& o, const Setting& s) { o.bench.kernels = read_text(s); }},

    {"logprob-tolerance", "Comparison", S::kValue, "DISTANCE", "logprobs up to this far apart count as equal", "0",
     kDiff, [](RunOptions& o, const Setting& s) { o.diff.logprob_tolerance = read_number(s, 0, 1e9); }},
    {"max-differences", "Comparison", S::kValue, "ROWS", "differing rows that are printed; all are counted", "20",
     kDiff, [](RunOptions& o, const Setting& s) { o.diff.max_differences = read_integer(s, 0); }},

    {"log-level", "Other", S::kValue, "LEVEL", "trace, debug, info, warning, error or off", "TOKENMILL_LOG_LEVEL, info",
     kAll,
     [](RunOptions& o, const Setting& s) {
       read_word(s, {std::begin(kLogLevels), std::end(kLogLevels)});
       o.log_level = log::parse_level(s.values[0]);
     },
     [](const RunOptions& o) -> ReportValue {
       return std::string(kLogLevels[static_cast<size_t>(chosen_log_level(o))]);
     }},
};

// Named by the design, not built: refused by name wherever they appear.
const std::vector<std::string> kFuture = {"enable-expert-parallel",
                                          "kv-cache-dtype",
                                          "quantization",
                                          "scheduler-reserve-full-isl",
                                          "kv-offloading-size",
                                          "kv-offloading-backend",
                                          "all2all-backend",
                                          "enable-eplb",
                                          "safetensors-load-strategy",
                                          "logprobs-mode",
                                          "speculative-config",
                                          "kv-transfer-config",
                                          "served-model-name",
                                          "time-limit",
                                          "enable-lora",
                                          "lora-modules",
                                          "async-scheduling"};

}  // namespace

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = [] {
    std::vector<OptionSpec> all = kBeforeSampling;
    all.insert(all.end(), sampling_options().begin(), sampling_options().end());
    all.insert(all.end(), kBehindSampling.begin(), kBehindSampling.end());
    return all;
  }();
  return table;
}

const OptionSpec* find_option(std::string_view name) {
  const std::vector<OptionSpec>& table = option_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const OptionSpec& spec) { return name == spec.name; });
  return found == table.end() ? nullptr : &*found;
}

bool is_future_option(std::string_view name) {
  return std::find(kFuture.begin(), kFuture.end(), name) != kFuture.end();
}

void apply_setting(RunOptions& options, const Setting& setting, Command command) {
  const OptionSpec* spec = find_option(setting.name);
  if (spec == nullptr && is_future_option(setting.name))
    throw Error(ErrorKind::kConfig, "{} is not available in this version", setting.where);
  if (spec == nullptr || !takes(*spec, command)) {
    std::vector<std::string> names;
    for (const OptionSpec& known : option_table())
      if (takes(known, command)) names.emplace_back(known.name);
    const std::string near = spec == nullptr ? closest(setting.name, names) : "";
    const char* dashes = setting.where.starts_with("--") ? "--" : "";  // none in job files
    throw Error(ErrorKind::kConfig, "{} is not an option of this command{}", setting.where,
                near.empty() ? "; --help lists them" : fmt::format("; did you mean {}{}?", dashes, near));
  }
  if (setting.values.empty()) throw Error(ErrorKind::kConfig, "{} needs a value ({})", setting.where, spec->value);
  if (!takes_several(spec->shape) && setting.values.size() != 1)
    throw Error(ErrorKind::kConfig, "{} has {} values; it takes one", setting.where, setting.values.size());
  spec->apply(options, setting);
}

jobs::ReportSection shown_options(const RunOptions& options, Bearing least) {
  jobs::ReportSection section;
  for (const OptionSpec& spec : option_table()) {
    if (spec.shown == nullptr || spec.bearing < least) continue;
    std::string name = spec.name;
    std::replace(name.begin(), name.end(), '-', '_');
    section.emplace_back(std::move(name), spec.shown(options));
  }
  return section;
}

}  // namespace tokenmill::app
