#include "io/record_reader.h"

#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/file.h"
#include "io/hdf5_reader.h"
#include "io/jsonl.h"

namespace tokenmill::io {
namespace {

constexpr std::string_view kHdf5Signature("\x89HDF\r\n\x1a\n", 8);

}  // namespace

RecordPath split_record_path(const std::string& path) {
  const size_t colon = path.find(":/");
  std::error_code ignored;
  if (colon == std::string::npos || colon == 0 || std::filesystem::exists(path, ignored)) return {path, ""};
  return {path.substr(0, colon), path.substr(colon + 1)};
}

bool is_hdf5_file(const std::string& path) {
  try {
    std::array<char, kHdf5Signature.size()> front;
    const int64_t size = File::open_read(path).read_at(0, std::as_writable_bytes(std::span(front)));
    return std::string_view(front.data(), static_cast<size_t>(size)) == kHdf5Signature;
  } catch (const Error&) {
    return false;
  }
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
