#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "io/hdf5_column.h"
#include "io/record_reader.h"

namespace tokenmill::io {

/// Rows of an HDF5 file as the records that a JSONL file would hold: {"id":...,"prompt":"..."} of a dataset of strings,
/// {"id":...,"prompt_token_ids":[...]} of a group of token ids; without options.ids_dataset there is no "id". A
/// position's offset is the row number in the file, its line that number plus one. Threads may have readers of their
/// own at the same time where HDF5 was built thread-safe (Debian's is).
class Hdf5Reader final : public RecordReader {
 public:
  /// path: the file and what is in it, "prompts.h5:/text". Throws Error(kInput) when it cannot hold prompts.
  Hdf5Reader(const std::string& path, const RecordReaderOptions& options);
  bool next(Record& record) override;
  RecordPosition position() const override { return {.offset = row_, .line = row_ + 1}; }
  void seek(const RecordPosition& position) override;
  bool can_jump() const override { return true; }
  const std::string& path() const override { return path_; }

 private:
  void load();
  std::string path_;
  int64_t max_record_bytes_;
  Hdf5Id file_;
  std::unique_ptr<Hdf5Column> prompts_, ids_;  // ids_: may be null
  const char* prompt_name_;
  int64_t row_ = 0;                          // that next() delivers
  int64_t block_begin_ = 0, block_end_ = 0;  // rows loaded
  int64_t load_rows_;                        // how many the next load asks for: few after a seek, then doubling
  std::string record_;
};

}  // namespace tokenmill::io
