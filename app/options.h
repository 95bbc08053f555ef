#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/rows/prompt.h"
#include "engine/models/load_mode.h"
#include "engine/sampling.h"
#include "engine/scheduler_options.h"
#include "io/json.h"
#include "jobs/journal/parts.h"
#include "jobs/shard.h"
#include "kernels/core/dtype.h"
#include "kernels/core/log.h"
#include "parallel/groups.h"

namespace tokenmill::app {

/// What --max-row-errors allows: a count or a share of all rows.
struct RowErrorLimit {
  int64_t count = 0;
  std::optional<double> percent;  ///< when set, count is not used
  /// True when `failed` of `total` rows is within the limit.
  bool allows(int64_t failed, int64_t total) const;
};

/// Synthetic load of `bench throughput`.
struct BenchOptions {
  int64_t input_len = 256;   ///< prompt tokens of each request
  int64_t output_len = 128;  ///< generated tokens of each request
  int64_t num_prompts = 64;
  int64_t repetitions = 1;         ///< how often the load is measured
  int64_t num_warmups = 4;         ///< requests before the clock starts: every page and primitive is touched once
  int64_t prefix_len = 0;          ///< tokens that all requests begin with, in front of input_len
  bool prefix_repetition = false;  ///< the load below instead of input_len and prefix_len
  int64_t repeated_prefix_len = 256, suffix_len = 256, num_prefixes = 10;
  std::string output_json;  ///< empty: standard output only
  std::string kernels;      ///< `bench kernels`: only names that contain this; empty: all
};

/// `validate`: the cluster that a job is planned for.
struct ValidateOptions {
  std::optional<int64_t> ranks;           ///< empty: as few as the layout needs
  std::optional<int64_t> ranks_per_node;  ///< empty: all on one node
};

/// `diff`: what is compared, and how.
struct DiffOptions {
  std::string a, b;              ///< output files, or directories that hold output.jsonl
  double logprob_tolerance = 0;  ///< absolute
  int64_t max_differences = 20;  ///< rows printed; all are counted
};

/// `merge`: whose results, and whether some may be missing.
struct MergeCommandOptions {
  std::vector<std::string> directories;
  bool partial = false;
  bool has_formats = false;  ///< RunOptions' output_jsonl and output_hdf5 were given; else the jobs' own
};

/// Everything a command was asked to do: defaults, then the job file, then the flags; checked. Names are the flags'
/// names with underscores.
struct RunOptions {
  // Model
  std::string model;           ///< Hugging Face directory or .gguf file
  std::optional<DType> dtype;  ///< empty: auto
  std::optional<int64_t> max_model_len;
  std::string chat_template;  ///< file that replaces the checkpoint's template; empty: none
  bool use_generation_config = true;
  io::JsonValue chat_template_kwargs;  ///< null, or an object: template variables of chats that do not set them
  std::string think_start, think_end;  ///< markers of thinking; empty: the vocabulary's

  // Input and output
  std::vector<std::string> input;  ///< files (io::split_record_path), globs expanded and sorted
  std::string input_ids;           ///< HDF5 inputs: the dataset of ids in each; empty: none
  std::string output;              ///< directory; finish_options() makes it the shard's
  jobs::Shard shard;               ///< the rows that are computed
  bool output_jsonl = true, output_hdf5 = false;  ///< which results are written there
  bool output_in_parts = false;                   ///< as files of all ranks, shown by output.h5
  HiddenStates hidden_states = HiddenStates::kNone;  ///< of each row's prompt, in output.h5
  std::string job_file;  ///< where options came from; empty: none
  bool restart = false;
  bool accept_change = false, retry_errors = false;
  double commit_seconds = 2;
  double stall_seconds = 1800;
  std::optional<double> max_seconds;          ///< of the run, from its start
  std::optional<double> deadline;             ///< seconds since 1970, UTC; empty: none
  std::optional<double> stop_before_seconds;  ///< of either
  jobs::Durability durability = jobs::Durability::kDisk;
  std::vector<std::string> passthrough;  ///< unknown fields of native rows that go to the output
  RowErrorLimit max_row_errors;
  bool row_metrics = false;
  std::string metrics_file;   ///< counters in Prometheus' text format; empty: none
  std::string iteration_log;  ///< one line a step; empty: none
  int64_t max_record_bytes = int64_t{16} << 20;
  rows::Overlong overlong = rows::Overlong::kError;
  int64_t max_logprobs = kDefaultMaxLogprobs;  ///< -1: no limit

  // Engine
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 2048;
  std::optional<double> gpu_memory_utilization;  ///< empty: the device's default
  std::optional<int64_t> kv_cache_memory_bytes;
  std::optional<int64_t> num_gpu_blocks_override;
  int64_t block_size = 16;
  SchedulerOptions scheduler{.waiting_order = WaitingOrder::kPrefix};
  int64_t plan_window_rows = 4096;  ///< held by a replica and ordered by shared beginnings
  bool dedup = false;
  uint64_t seed = 0;
  std::string date;  ///< YYYY-MM-DD for strftime_now; empty: the day the job starts
  bool deterministic = true;

  // Layout
  std::string device = "auto";     ///< auto, cpu, cuda
  std::string cpu_isa = "auto";    ///< auto or a name of kernels/cpu's table
  std::string attention_backend = "auto";  ///< of a CUDA device: auto or a name of kernels/cuda's table
  bool disable_cascade_attn = false;       ///< of a CUDA device: rows that share KV blocks read them one by one
  bool enforce_eager = false;              ///< no CUDA graphs
  int64_t max_cudagraph_capture_size = 512;
  std::optional<int64_t> threads;  ///< per rank; empty: the rank's share of its affinity mask
  int64_t tensor_parallel_size = 1, pipeline_parallel_size = 1;
  std::optional<int64_t> data_parallel_size;  ///< empty: what the ranks leave
  /// Share of a job's tokens whose logits are wanted, as far as it is known beforehand: what the head costs its stage.
  double sampled_share = 0.5;
  LoadMode load = LoadMode::kNode;
  LoadFormat load_format = LoadFormat::kAuto;
  std::string stage_dir;     ///< node-local directory for copies of the model's files; empty: none are made
  std::string staged_model;  ///< the copy, once it is made
  std::string weight_cache;  ///< directory of packed weights; empty: none
  int64_t tp_invariant = 0;  ///< largest tensor-parallel size that shall give the same bits; 0: no such promise

  /// For rows that do not say: fields as a row would write them, checked as far as possible without the model.
  io::JsonValue sampling = io::JsonValue::object();

  /// Where the model's files are read.
  const std::string& model_path() const { return staged_model.empty() ? model : staged_model; }

  // Other commands
  bool add_special_tokens = true;  ///< tokenize: start and end tokens around plain strings
  BenchOptions bench;
  DiffOptions diff;
  MergeCommandOptions merge;
  ValidateOptions validate;

  std::optional<log::Level> log_level;  ///< --log-level, else TOKENMILL_LOG_LEVEL, else info
};

/// The asked layout over ranks; dp 0: what they leave.
parallel::Grid asked_grid(const RunOptions& options);

/// Checks that need more than one option and the file system: required options, glob expansion (options.input is
/// replaced by the sorted files), the ranks. world_size is the number of ranks that will run. Throws Error(kConfig).
void finish_options(RunOptions& options, const std::string& command, int world_size);

/// The day that strftime_now shows: --date, else the day on which the job in options.output began if the run may
/// continue it, else that of another shard, else SOURCE_DATE_EPOCH's day, else today (UTC), as YYYY-MM-DD.
std::string job_date(const RunOptions& options);

/// --log-level, else TOKENMILL_LOG_LEVEL, else info. Throws Error(kConfig) for an unknown level in the variable.
log::Level chosen_log_level(const RunOptions& options);

/// SOURCE_DATE_EPOCH in seconds, or 0: the `created` of OpenAI answers. Throws Error(kConfig) when it is no number.
int64_t source_date_epoch();

}  // namespace tokenmill::app
