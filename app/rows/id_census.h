#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tokenmill::rows {

/// A set of 64-bit hashes with a bounded size: open addressing, 11 to 21 bytes an entry.
class HashSet64 {
 public:
  /// True when the value was not there. Values are hashes already; 0 is a value like any other.
  bool insert(uint64_t value);
  int64_t size() const { return size_; }

 private:
  void grow();
  std::vector<uint64_t> slots_;
  int64_t size_ = 0;
  bool has_zero_ = false;
};

/// First row of each key, by 96 bits of its hash: open addressing, 21 to 43 bytes an entry.
class FirstRows {
 public:
  /// The row stored for this key, after storing `row` when there was none. row < 2^32 - 1.
  int64_t first(uint64_t high, uint32_t low, int64_t row);
  int64_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t high = 0;
    uint32_t low = 0;
    uint32_t row_plus_one = 0;  // 0: free
  };
  Slot& find(uint64_t high, uint32_t low);
  void grow();
  std::vector<Slot> slots_;
  int64_t size_ = 0;
};

/// Looks for repeated ids while the index pass sees every record of the job once, in order, on one rank. Ids are
/// compared by 64-bit hashes (native) and 96-bit hashes (custom_id), so memory is at most 21 and 43 bytes a row with an
/// id, whatever the ids' lengths; after max_ids of a kind no more are taken in, and the result says so.
class IdCensus {
 public:
  explicit IdCensus(int64_t max_ids = int64_t{1} << 27) : max_ids_(max_ids) {}
  void add(int64_t row, std::string_view record);

  /// OpenAI rows whose custom_id an earlier row has, with that row. Each becomes an error row: the first keeps the id.
  const std::unordered_map<int64_t, int64_t>& repeated_custom_ids() const { return repeated_; }
  /// Native rows whose id an earlier native row has: allowed, worth a warning.
  int64_t num_repeated_ids() const { return num_repeated_ids_; }
  /// False when the job has more ids than were compared.
  bool complete() const { return complete_; }

  /// For the other ranks, which need the repeated custom ids only.
  std::string serialize() const;
  static std::unordered_map<int64_t, int64_t> deserialize(const std::string& bytes);

 private:
  int64_t max_ids_;
  HashSet64 native_ids_;
  FirstRows custom_ids_;
  std::unordered_map<int64_t, int64_t> repeated_;
  int64_t num_repeated_ids_ = 0;
  bool complete_ = true;
};

}  // namespace tokenmill::rows
