#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "jobs/journal/ledger.h"

namespace tokenmill::jobs {

/// What unfinished rows had come to when earlier runs stopped: where the journal holds it, a few thousand rows at most.
class PartialRows {
 public:
  /// entry: a partial one of that part file; a later one of the same row replaces it.
  void insert(const LedgerEntry& entry, const std::string& part);
  void erase(int64_t row) { places_.erase(row); }
  int64_t size() const { return static_cast<int64_t>(places_.size()); }

  /// The row's record without its newline. nullopt: nothing was saved of it, or of another input record (its digest is
  /// not this one). Throws Error(kIo) when the part cannot be read or is damaged.
  std::optional<std::string> read(int64_t row, uint64_t row_digest) const;

  std::string serialize() const;
  static PartialRows deserialize(std::string_view bytes);

 private:
  struct Place {
    std::string part;
    LedgerEntry entry;
  };
  std::map<int64_t, Place> places_;
};

}  // namespace tokenmill::jobs
