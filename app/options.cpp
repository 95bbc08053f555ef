#include "app/options.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "app/report_files.h"
#include "io/file.h"
#include "io/record_reader.h"
#include "jobs/index.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

/// A name that exists is itself, even when it holds * or [; anything else is a pattern. What is in an HDF5 file, as
/// "part-*.h5:/text", is the same in all of them.
void expand(const std::string& input, std::vector<std::string>& files) {
  const io::RecordPath place = io::split_record_path(input);
  const std::string& pattern = place.file;
  const std::string inside = place.dataset.empty() ? "" : ":" + place.dataset;
  if (is_directory(pattern))
    throw Error(ErrorKind::kConfig, "--input {} is a directory; name files or a pattern such as {}/*.jsonl", pattern,
                pattern);
  if (pattern.ends_with(".yaml") || pattern.ends_with(".yml"))
    throw Error(ErrorKind::kConfig, "--input {} is a YAML file; put the job file before --input", pattern);
  if (exists(pattern)) {
    files.push_back(pattern + inside);
    return;
  }
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    if (!is_directory(found.gl_pathv[i])) files.push_back(found.gl_pathv[i] + inside);
  const bool none = status != 0 || found.gl_pathc == 0;
  ::globfree(&found);
  if (none)
    throw Error(ErrorKind::kConfig, "--input {}: no such file{}", pattern,
                pattern.find_first_of("*?[") == std::string::npos ? "" : " matches");
}

void expand_input(RunOptions& options) {
  std::vector<std::string> files;
  for (const std::string& pattern : options.input) expand(pattern, files);
  // Rows are answered in the order the user gave; only the files of one pattern are sorted (glob does that).
  std::set<std::string> seen;
  for (const std::string& file : files) {
    const io::RecordPath place = io::split_record_path(file);
    std::error_code ignored;
    const std::filesystem::path real = std::filesystem::weakly_canonical(place.file, ignored);
    if (!seen.insert(ignored ? file : real.string() + ":" + place.dataset).second)
      throw Error(ErrorKind::kConfig, "--input names {} twice; every row would be answered twice", file);
  }
  options.input = std::move(files);
  jobs::check_inputs(options.input);  // before anything opens one: a pipe would wait for its writer
  const bool any_hdf5 = std::any_of(options.input.begin(), options.input.end(), [](const std::string& file) {
    return !io::split_record_path(file).dataset.empty();
  });
  if (!options.input_ids.empty() && !any_hdf5)
    throw Error(ErrorKind::kConfig, "--input-ids {} names ids in HDF5 files, and no --input is one (FILE.h5:/NAME)",
                options.input_ids);
}

/// A directory cannot be made where such a link stands.
void check_no_dangling_link(const std::string& output) {
  std::string path = output;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error) || exists(path)) return;
  throw Error(ErrorKind::kConfig, "--output {} is a link to {}, which is not there; make that directory or remove the link",
              output, std::filesystem::read_symlink(path, error).string());
}

}  // namespace

bool RowErrorLimit::allows(int64_t failed, int64_t total) const {
  if (!percent) return failed <= count;
  return static_cast<double>(failed) * 100.0 <= *percent * static_cast<double>(total);
}

parallel::Grid asked_grid(const RunOptions& options) {
  return {.dp = static_cast<int>(options.data_parallel_size.value_or(0)),
          .pp = static_cast<int>(options.pipeline_parallel_size),
          .tp = static_cast<int>(options.tensor_parallel_size)};
}

namespace {

void check_dummy_weights(const RunOptions& options) {
  if (options.load_format != LoadFormat::kDummy) return;
  for (const auto& [name, value] : {std::pair("weight-cache", options.weight_cache), {"stage-dir", options.stage_dir}})
    if (!value.empty())
      throw Error(ErrorKind::kConfig, "--{} {}: with --load-format dummy there are no weights to keep; leave it out",
                  name, value);
}

}  // namespace

void finish_options(RunOptions& options, const std::string& command, int world_size) {
  const bool is_job = command == "run" || command == "validate";
  const auto need = [&](bool given, const char* name) {
    if (!given) throw Error(ErrorKind::kConfig, "{} needs --{}", command, name);
  };
  if (command != "bench kernels") need(!options.model.empty(), "model");
  if (is_job) need(!options.input.empty(), "input");
  if (is_job) need(!options.output.empty(), "output");
  if (is_job) check_no_dangling_link(options.output);
  if (is_job) jobs::check_division(options.shard, options.output);
  if (is_job) options.output = options.shard.directory(options.output);
  if (!options.model.empty() && !exists(options.model))
    throw Error(ErrorKind::kConfig, "--model {}: no such file or directory", options.model);
  std::error_code ignored;
  if (!options.model.empty() && !is_directory(options.model) && !std::filesystem::is_regular_file(options.model, ignored))
    throw Error(ErrorKind::kConfig, "--model {} is {}; it must be a Hugging Face directory or a .gguf file", options.model,
                io::kind_of_file(options.model));
  if (!options.chat_template.empty() && !exists(options.chat_template))
    throw Error(ErrorKind::kConfig, "--chat-template {}: no such file", options.chat_template);
  if (!options.chat_template.empty() && !std::filesystem::is_regular_file(options.chat_template))
    throw Error(ErrorKind::kConfig, "--chat-template {} is {}; it must be a file, which can be read again",
                options.chat_template, io::kind_of_file(options.chat_template));
  if (is_job) expand_input(options);
  if (is_job && exists(options.output) && !is_directory(options.output))
    throw Error(ErrorKind::kConfig, "--output {} is a file; it must be a directory", options.output);
  if (options.output_in_parts && !options.output_hdf5)
    throw Error(ErrorKind::kConfig,
                "--output-layout parts needs --output-format hdf5 or jsonl,hdf5: output.h5 is what shows the parts as one");
  if (options.hidden_states != HiddenStates::kNone && !options.output_hdf5)
    throw Error(ErrorKind::kConfig,
                "--hidden-states {} needs --output-format hdf5 or jsonl,hdf5: JSONL does not hold arrays of them",
                to_string(options.hidden_states));
  const parallel::Grid grid = parallel::resolve_grid(asked_grid(options), world_size);
  if (!options.scheduler.enable_chunked_prefill && options.max_model_len &&
      *options.max_model_len > options.max_num_batched_tokens)
    throw Error(
        ErrorKind::kConfig,
        "--max-num-batched-tokens {} is below --max-model-len {}: without chunked prefill no longer prompt could "
        "run; raise one, lower the other, or leave --enable-chunked-prefill on",
        options.max_num_batched_tokens, *options.max_model_len);
  if (!options.scheduler.enable_chunked_prefill && options.scheduler.long_prefill_token_threshold > 0)
    throw Error(ErrorKind::kConfig,
                "--long-prefill-token-threshold {} needs chunked prefill; leave it out or --enable-chunked-prefill on",
                options.scheduler.long_prefill_token_threshold);
  if (options.max_num_batched_tokens < options.max_num_seqs)
    throw Error(ErrorKind::kConfig,
                "--max-num-batched-tokens {} is below --max-num-seqs {}; each running row needs one",
                options.max_num_batched_tokens, options.max_num_seqs);
  check_dummy_weights(options);
  check_report_files(options, command, grid.dp);
}

log::Level chosen_log_level(const RunOptions& options) {
  if (options.log_level) return *options.log_level;
  const char* text = std::getenv("TOKENMILL_LOG_LEVEL");
  return text == nullptr || *text == '\0' ? log::Level::kInfo : log::parse_level(text);
}

int64_t source_date_epoch() {
  const char* text = std::getenv("SOURCE_DATE_EPOCH");
  if (text == nullptr || *text == '\0') return 0;
  int64_t seconds = 0;
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, seconds);
  if (result.ec != std::errc() || result.ptr != end || seconds < 0)
    throw Error(ErrorKind::kConfig, "SOURCE_DATE_EPOCH is {}; it must be a number of seconds", text);
  return seconds;
}

std::string job_date(const RunOptions& options) {
  if (!options.date.empty()) return options.date;
  const jobs::OutputDir output(options.output);
  if (!options.output.empty() && !options.restart && jobs::can_continue(output, {.accept_change = true}, nullptr))
    if (const std::string* date = jobs::Identity::read(output.identity_path()).find("date")) return *date;
  if (!options.shard.is_all())  // the other shards may have begun yesterday
    for (const std::string& other : jobs::shard_directories(std::filesystem::path(options.output).parent_path()))
      if (const std::string path = jobs::OutputDir(other).identity_path(); exists(path))
        if (const std::string* date = jobs::Identity::read(path).find("date")) return *date;
  const int64_t epoch = source_date_epoch();
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(epoch > 0 ? static_cast<std::time_t>(epoch) : std::time(nullptr)));
}

}  // namespace tokenmill::app
