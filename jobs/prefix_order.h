#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace tokenmill::jobs {

/// Rows in an order in which those whose prompts begin alike are neighbours.
struct PrefixOrder {
  std::vector<uint32_t> rows;   ///< a permutation of [0, num_rows)
  std::vector<uint8_t> shared;  ///< by place: how many fingerprints the row has in common with the one before it
};

/// Remembers, of each row, how its prompt begins: 32-bit fingerprints of growing beginnings (128 bytes, every 256 bytes
/// up to 4 KiB, then steps of a 16th up to 256 KiB) and one of the whole. The bytes themselves are not kept. Unequal
/// beginnings with equal fingerprints only make strangers neighbours: about n * n / 2^33 pairs among n rows.
class PrefixFingerprints {
 public:
  /// The next row. An empty prefix is like no other.
  void add(std::string_view prefix);
  int64_t num_rows() const { return static_cast<int64_t>(starts_.size()); }
  int64_t num_fingerprints() const { return static_cast<int64_t>(fingerprints_.size()); }
  void clear();
  /// Room for so many rows and fingerprints: what is added within it moves nothing.
  void reserve(int64_t num_rows, int64_t num_fingerprints);

  /// Depth first: rows that share a beginning stand together, inside them those that share a longer one. Among
  /// brothers whoever holds the smallest row number comes first, so rows that share nothing keep their order.
  PrefixOrder order() const;

 private:
  std::vector<uint32_t> fingerprints_;  // of all rows, one after the other
  std::vector<uint32_t> starts_;        // by row
};

}  // namespace tokenmill::jobs
