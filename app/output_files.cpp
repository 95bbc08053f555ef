#include "app/output_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/rows/result_tables.h"
#include "app/version.h"
#include "io/json.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;

constexpr int64_t kMaxNoteBytes = 64 << 20;  // it names all inputs

/// The values of an attribute over several jobs.
void add_value(std::string& values, const std::string& value) {
  constexpr std::string_view kBetween = "; ";
  const std::string all = fmt::format("{0}{1}{0}", kBetween, values);
  if (all.find(fmt::format("{0}{1}{0}", kBetween, value)) == all.npos) values += fmt::format("{}{}", kBetween, value);
}

}  // namespace

OutputFiles OutputFiles::of(const RunOptions& options, int64_t hidden_size) {
  return {.lines = options.output_jsonl,
          .tables = options.output_hdf5,
          .hidden_columns = options.hidden_states == HiddenStates::kNone ? 0 : hidden_size,
          .attributes = {{"tokenmill", kVersion},
                         {"model", options.model},
                         {"inputs", fmt::format("{}", fmt::join(options.input, " "))},
                         {"input_ids", options.input_ids},
                         {"seed", std::to_string(options.seed)},
                         {"hidden_states", to_string(options.hidden_states)},
                         {"sampling", io::to_json(options.sampling)}}};
}

std::string OutputFiles::note() const {
  JsonValue texts = JsonValue::object();
  for (const auto& [name, value] : attributes) texts.members().emplace_back(name, JsonValue::string(value));
  return io::to_json(JsonValue::object({{"lines", JsonValue::boolean(lines)},
                                        {"tables", JsonValue::boolean(tables)},
                                        {"hidden_columns", JsonValue::number(hidden_columns)},
                                        {"attributes", std::move(texts)}})) +
         "\n";
}

OutputFiles OutputFiles::read(const std::string& directory) {
  const std::string path = jobs::OutputDir(directory).outputs_path();
  if (!std::filesystem::exists(path))
    throw Error(
        ErrorKind::kConfig,
        "{}: no run has come to its rows yet, or one of an older version ({} is missing); give the job's command "
        "again",
        directory, path);
  const JsonValue note = io::parse_json_file(path, kMaxNoteBytes);
  OutputFiles files{.lines = note.at("lines").as_bool(),
                    .tables = note.at("tables").as_bool(),
                    .hidden_columns = note.at("hidden_columns").as_int64()};
  for (const auto& [name, value] : note.at("attributes").members())
    files.attributes.emplace_back(name, value.as_string());
  return files;
}

bool OutputFiles::add(const OutputFiles& other) {
  if (hidden_columns != other.hidden_columns) return false;
  lines = lines || other.lines;
  tables = tables || other.tables;
  for (const auto& [name, value] : other.attributes) {
    const auto mine =
        std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == name; });
    if (mine == attributes.end())
      attributes.emplace_back(name, value);
    else
      add_value(mine->second, value);
  }
  return true;
}

std::unique_ptr<io::RecordWriter> OutputFiles::make_tables(const std::string& path, bool partial) const {
  return std::make_unique<rows::ResultTables>(path, attributes, hidden_columns, partial);
}

}  // namespace tokenmill::app
