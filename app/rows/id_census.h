#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "io/sorted_runs.h"

namespace tokenmill::rows {

/// Looks for repeated ids while the index pass sees every record of the job once, in order, on one rank. Ids are
/// compared by hashes of 64 bits (native: they are only counted) and 128 bits (custom_id), whatever their lengths, and
/// sorted in a scratch directory: memory is 8 MB at most, and the rows that do repeat a custom_id.
class IdCensus {
 public:
  /// scratch_dir: an existing directory for the hashes that memory does not hold; empty: memory holds all.
  void begin(const std::string& scratch_dir);
  /// After begin(). Throws Error(kIo) when the scratch directory has no room.
  void add(int64_t row, std::string_view record);
  /// After the last row; the results are there.
  void finish();

  /// OpenAI rows whose custom_id an earlier row has, with that row. Each becomes an error row: the first keeps the id.
  const std::unordered_map<int64_t, int64_t>& repeated_custom_ids() const { return repeated_; }
  /// Native rows whose id an earlier native row has: allowed, worth a warning.
  int64_t num_repeated_ids() const { return num_repeated_ids_; }

  /// For the other ranks, which need the repeated custom ids only.
  std::string serialize() const;
  static std::unordered_map<int64_t, int64_t> deserialize(const std::string& bytes);

 private:
  struct CustomId {
    uint64_t high = 0, low = 0;
    int64_t row = 0;
    auto operator<=>(const CustomId&) const = default;
  };
  std::optional<io::SortedRuns<uint64_t>> native_ids_;
  std::optional<io::SortedRuns<CustomId>> custom_ids_;
  std::unordered_map<int64_t, int64_t> repeated_;
  int64_t num_repeated_ids_ = 0;
};

}  // namespace tokenmill::rows
