#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tokenmill::text {

/// Ids of words met before, of bounded size: one slot per hash value, newer words replace older ones, and everything is
/// forgotten when the words fill kMaxBytes. For one thread.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 128;

  /// Ids of the word; data() == nullptr when it is not known. Valid until the next insert.
  std::span<const int32_t> find(std::string_view word, uint64_t hash) const;
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids);
  void clear();
  static uint64_t hash(std::string_view word);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t word_begin = 0;
    uint32_t ids_begin = 0;
    uint16_t word_size = 0;  // 0: free
    uint16_t num_ids = 0;
  };
  static constexpr size_t kSlots = 1 << 16;
  static constexpr size_t kMaxBytes = 2 << 20;
  std::vector<Slot> slots_;  // empty until the first insert
  std::string words_;
  std::vector<int32_t> ids_;
};

}  // namespace tokenmill::text
