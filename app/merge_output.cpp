#include "app/merge_output.h"

#include <algorithm>
#include <filesystem>

#include "io/file.h"
#include "io/record_reader.h"
#include "jobs/journal/identity.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

using Extensions = std::vector<std::string>;

const Extensions kLines = {".jsonl", ".json"}, kTables = {".h5", ".hdf5"}, kCompressed = {".gz", ".zst", ".zstd"};

bool ends_in(const std::filesystem::path& path, const Extensions& extensions) {
  return std::find(extensions.begin(), extensions.end(), path.extension()) != extensions.end();
}

}  // namespace

MergePaths merge_paths(const std::string& output, bool lines, bool tables) {
  if (output == "-")
    throw Error(ErrorKind::kConfig,
                "--output - would be a file of that name; merge writes files: name one, such as "
                "merged.jsonl");
  std::filesystem::path stem = output;
  if (ends_in(stem, kCompressed))
    throw Error(ErrorKind::kConfig, "--output {} would not be compressed; name it {}, and compress it afterwards",
                output, stem.replace_extension().string());
  const bool is_tables = ends_in(stem, kTables), is_lines = ends_in(stem, kLines);
  if (lines && tables) {
    if (is_tables || is_lines) stem.replace_extension();
    return {is_tables ? stem.string() + ".jsonl" : output, is_tables ? output : stem.string() + ".h5"};
  }
  if (lines ? is_tables : is_lines)
    throw Error(ErrorKind::kConfig, "--output {} would hold {}; name it {}, or give --output-format {}", output,
                lines ? "lines of JSON" : "HDF5 tables", stem.replace_extension(lines ? ".jsonl" : ".h5").string(),
                lines ? "hdf5" : "jsonl");
  return {lines ? output : "", tables ? output : ""};
}

void check_merge_output(const std::vector<std::string>& directories, const std::string& output) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kConfig, "--output {} {}; name another file", output, what);
  };
  std::error_code error;
  for (const std::string& directory : directories) {
    const jobs::OutputDir place(directory);
    if (place.is_result(output)) refuse("is a result of " + directory + ", which a rerun keeps up");
    if (!std::filesystem::exists(place.identity_path(), error)) continue;
    for (const std::string& input : jobs::input_paths(jobs::Identity::read(place.identity_path())))
      if (std::filesystem::equivalent(io::files_of({input}).front(), output, error))
        refuse("is an input of " + directory + " and would be overwritten");
  }
  try {
    io::check_replaceable(output);
  } catch (const Error& reason) {
    throw Error(ErrorKind::kConfig, "--output {}", reason.what());
  }
}

}  // namespace tokenmill::app
