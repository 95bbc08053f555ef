#include "io/record_reader.h"

#include <filesystem>

#include "io/hdf5_reader.h"
#include "io/jsonl.h"

namespace tokenmill::io {

RecordPath split_record_path(const std::string& path) {
  const size_t colon = path.find(":/");
  std::error_code ignored;
  if (colon == std::string::npos || colon == 0 || std::filesystem::exists(path, ignored)) return {path, ""};
  return {path.substr(0, colon), path.substr(colon + 1)};
}

std::vector<std::string> files_of(const std::vector<std::string>& record_paths) {
  std::vector<std::string> files;
  for (const std::string& path : record_paths) files.push_back(split_record_path(path).file);
  return files;
}

int64_t RecordReader::skip(int64_t count) {
  Record record;
  int64_t skipped = 0;
  while (skipped < count && next(record)) ++skipped;
  return skipped;
}

std::unique_ptr<RecordReader> open_records(const std::string& path, const RecordReaderOptions& options) {
  if (!split_record_path(path).dataset.empty()) return std::make_unique<Hdf5Reader>(path, options);
  if (is_hdf5_file(path))
    throw Error(ErrorKind::kInput, "{0}: is an HDF5 file; name what in it holds the prompts, as {0}:/NAME. It has {1}",
                path, list_hdf5(open_hdf5(path), "/"));
  return std::make_unique<JsonlReader>(open_byte_stream(path), options);
}

}  // namespace tokenmill::io
