// Any bytes as an HDF5 file: records that do not depend on where a reader starts, or an error that names the file.
#include <string>
#include <vector>

#include "io/record_reader.h"
#include "io/utf8.h"
#include "kernels/core/error.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

namespace {

constexpr int64_t kMostRows = 10000;  // a file of few bytes may hold many

std::vector<std::string> records_from(const std::string& path, const io::RecordReaderOptions& options, int64_t first) {
  const auto reader = io::open_records(path, options);
  reader->seek({.offset = first, .line = first + 1});
  std::vector<std::string> records;
  io::Record record;
  while (static_cast<int64_t>(records.size()) < kMostRows && reader->next(record)) {
    test::promise(record.oversized || static_cast<int64_t>(record.bytes.size()) == record.length,
                  "length is that of the bytes");
    records.emplace_back(record.oversized ? record.prefix : record.bytes);
  }
  return records;
}

void read(const std::string& path, const io::RecordReaderOptions& options, const std::string& file) {
  try {
    const std::vector<std::string> all = records_from(path, options, 0);
    const auto half = static_cast<int64_t>(all.size() / 2);
    const std::vector<std::string> rest = records_from(path, options, half);
    const size_t both = std::min(rest.size(), all.size() - static_cast<size_t>(half));
    for (size_t i = 0; i < both; ++i)
      test::promise(rest[i] == all[static_cast<size_t>(half) + i], "records do not depend on where a reader starts");
  } catch (const Error& error) {
    test::promise(error.kind() == ErrorKind::kIo || error.kind() == ErrorKind::kInput, "a damaged file is its error");
    const std::string_view text = error.what();
    test::promise(text.starts_with(file) && text.size() < 2000, "the message names the file and is short");
    test::promise(io::find_invalid_utf8(text) == text.npos, "messages are valid UTF-8");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const test::MemoryFile file(test::as_text(data, size));
  const io::RecordReaderOptions options{.max_record_bytes = 4096, .ids_dataset = "/ids"};
  for (const char* dataset : {":/texts", ":/fixed", ":/tokens"}) read(file.path() + dataset, options, file.path());
  return 0;
}
