#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "io/record_reader.h"

namespace tokenmill::diff {

/// One line of an output file, unparsed.
struct ResultLine {
  int64_t line = 0;  ///< 1-based
  std::string bytes;
};

/// What a line is matched by.
struct RowKey {
  std::string id_json;         ///< id or custom_id as compact JSON text; "null" when it is null
  std::optional<int64_t> row;  ///< native rows: the row number
};

/// Rows of an output file from front to back, with a bounded look ahead for an id. Lines that are no result rows throw
/// Error(kInput) "FILE:LINE: ..." when their key is asked for.
class RowStream {
 public:
  static constexpr size_t kMaxAheadRows = 4096;
  static constexpr int64_t kMaxAheadBytes = int64_t{64} << 20;

  /// path: JSONL, plain or packed.
  explicit RowStream(const std::string& path);

  /// The line to be matched next; nullptr at the end. Valid until pop().
  const ResultLine* head();
  const RowKey& head_key();
  void pop();
  /// How many lines must be passed over until one with this id is the head: at least 1. Empty when none of the next
  /// kMaxAheadRows lines (kMaxAheadBytes of them) has it.
  std::optional<int64_t> distance_to(const std::string& id_json);
  const std::string& path() const { return reader_->path(); }
  /// "out/output.jsonl:12".
  std::string place(const ResultLine& line) const;

 private:
  struct Entry {
    ResultLine line;
    std::optional<RowKey> key;
  };
  bool read_one();
  void look_ahead();
  RowKey key_of(const ResultLine& line) const;
  const RowKey& index(size_t position);

  std::unique_ptr<io::RecordReader> reader_;
  std::deque<Entry> entries_;  // head first
  int64_t popped_ = 0;         // lines before the head
  size_t num_indexed_ = 0;     // of entries_, from the front: key known and in positions_
  int64_t held_bytes_ = 0;
  std::unordered_multimap<std::string, int64_t> positions_;  // id -> lines before it
};

}  // namespace tokenmill::diff
