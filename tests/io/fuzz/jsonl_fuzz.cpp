// Any bytes are records: the same ones whatever the size of the reads, the cap on records, and the position a reader
// starts at.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "io/jsonl.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

namespace {

class TextStream final : public io::ByteStream {
 public:
  TextStream(std::string_view text, size_t piece) : text_(text), piece_(piece) {}
  int64_t read(std::span<std::byte> buffer) override {
    const size_t n = std::min(std::min(piece_, buffer.size()), text_.size() - offset_);
    std::copy_n(reinterpret_cast<const std::byte*>(text_.data()) + offset_, n, buffer.data());
    offset_ += n;
    return static_cast<int64_t>(n);
  }
  void seek(int64_t offset) override { offset_ = std::min(static_cast<size_t>(offset), text_.size()); }
  bool can_jump() const override { return true; }
  const std::string& path() const override { return path_; }

 private:
  std::string_view text_;
  std::string path_ = "fuzz";
  size_t piece_;
  size_t offset_ = 0;
};

struct Row {
  int64_t line, offset, length;
  std::string bytes;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(io::JsonlReader& reader, int64_t keep_up_to) {
  std::vector<Row> rows;
  io::Record record;
  while (reader.next(record)) {
    const bool keep = record.length <= keep_up_to;
    test::promise(record.oversized || static_cast<int64_t>(record.bytes.size()) == record.length,
                  "length is that of the bytes");
    rows.push_back({record.line, record.offset, record.length, keep ? std::string(record.bytes) : std::string()});
  }
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const int64_t cap = 1 + data[0];
  const size_t piece = 1 + data[1] % 64;
  const std::string_view text = test::as_text(data + 2, size - 2);
  io::JsonlReader whole(std::make_unique<TextStream>(text, text.size() + 1));
  const std::vector<Row> rows = rows_of(whole, cap);
  for (const Row& row : rows)
    test::promise(row.offset >= 0 && row.offset + row.length <= static_cast<int64_t>(text.size()),
                  "records lie inside the file");
  io::JsonlReader pieces(std::make_unique<TextStream>(text, piece), {.max_record_bytes = cap});
  test::promise(rows_of(pieces, cap) == rows, "records do not depend on reads and cap");

  const auto half = static_cast<int64_t>(rows.size() / 2);
  io::JsonlReader skipping(std::make_unique<TextStream>(text, piece), {.max_record_bytes = cap});
  test::promise(skipping.skip(half) == half, "skip counts records");
  const io::RecordPosition position = skipping.position();
  const std::vector<Row> rest(rows.begin() + half, rows.end());
  test::promise(rows_of(skipping, cap) == rest, "reading goes on behind the records skipped");
  io::JsonlReader fresh(std::make_unique<TextStream>(text, piece), {.max_record_bytes = cap});
  fresh.seek(position);
  test::promise(rows_of(fresh, cap) == rest, "a reader that starts at a position gives the same records");
  return 0;
}
