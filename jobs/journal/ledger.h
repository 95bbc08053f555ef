#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace tokenmill::jobs {

/// One finished row in a ledger; the byte format is in jobs/README.md.
struct LedgerEntry {
  int64_t row = 0;
  int64_t offset = 0;          ///< of the record in the part file
  int64_t length = 0;          ///< bytes of the record, its newline included
  uint64_t record_digest = 0;  ///< digest() of those bytes
  uint64_t row_digest = 0;     ///< digest() of the input record
  bool failed = false;         ///< the record carries an error
  bool operator==(const LedgerEntry&) const = default;
};

/// XXH3, 64 bits, seed 0.
uint64_t digest(std::string_view bytes);

/// Appends entries to a new ledger file. At most kMaxUnflushed of them may be appended between two flushes: they stay
/// in memory until then, so that the caller decides when they reach the file (after their records).
class LedgerWriter {
 public:
  static constexpr int64_t kMaxUnflushed = 1024;
  explicit LedgerWriter(const std::string& path);
  void append(const LedgerEntry& entry);
  /// Hands everything appended to the operating system.
  void flush();
  void close() { writer_.close(); }

 private:
  io::FileWriter writer_;
  int64_t num_entries_ = 0;
  int64_t num_unflushed_ = 0;
};

/// Reads a ledger. What an interrupted write left at its end (half an entry, entries whose checksum fails with no good
/// one behind them) is torn: not counted, but known. Anything else that is wrong throws Error(kIo) naming the entry.
class LedgerReader {
 public:
  explicit LedgerReader(const std::string& path);
  int64_t num_entries() const { return num_entries_; }
  int64_t torn_bytes() const { return torn_bytes_; }
  const std::string& path() const { return file_.path(); }
  /// Entries [first, first + entries.size()).
  void read(int64_t first, std::span<LedgerEntry> entries) const;

 private:
  bool read_one(int64_t index, LedgerEntry& entry) const;
  io::File file_;
  int64_t num_entries_ = 0;
  int64_t torn_bytes_ = 0;
};

}  // namespace tokenmill::jobs
