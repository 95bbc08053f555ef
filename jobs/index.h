#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/record_reader.h"

namespace tokenmill::jobs {

/// Rows [begin, end) of the job.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

/// One input file of the job.
struct InputFile {
  std::string path;       ///< as the user gave it (io::split_record_path): what messages name
  std::string read_path;  ///< where records are read: path, or its unpacked copy
  int64_t bytes = 0;      ///< size of read_path's file
  int64_t changed_ns =
      0;  ///< its time of change since 1970 as this rank found it (copies have others); 0: not looked at
  int64_t first_row = 0;  ///< of the job; rows are numbered over all files in order
  bool can_jump = true;   ///< false for a packed file that was not unpacked: positions cost a read from its start
};

struct IndexOptions;

/// Where the rows of a job are: a position per 1,024 rows and file, 16 bytes each. The same on every rank.
class Index {
 public:
  static constexpr int64_t kRowsPerEntry = 1024;

  int64_t num_rows() const { return num_rows_; }
  const std::vector<InputFile>& files() const { return files_; }
  /// Rows of one file.
  int64_t num_rows(size_t file) const {
    return (file + 1 < files_.size() ? files_[file + 1].first_row : num_rows_) - files_[file].first_row;
  }

  /// The nearest position known at or before a row.
  struct Place {
    size_t file = 0;
    int64_t row = 0;  ///< the row that starts at position, at most kRowsPerEntry - 1 before the one asked for
    io::RecordPosition position;
  };
  /// row in [0, num_rows()).
  Place locate(int64_t row) const;

  /// Unpacked copies have moved from one directory to another.
  void relocate(const std::string& from_dir, const std::string& to_dir);
  /// On any rank, once: every file is here and has the size that was indexed, and must not change from now on. Throws
  /// Error(kIo) naming the file.
  void watch_files();
  /// For the other ranks. deserialize throws Error(kInternal) when the bytes are not an index.
  std::string serialize() const;
  static Index deserialize(const std::string& bytes);

 private:
  friend Index build_index(const std::vector<std::string>&, const IndexOptions&);
  void add_file(InputFile file, const IndexOptions& options);
  std::vector<InputFile> files_;
  std::vector<size_t> first_entry_;          // by file
  std::vector<io::RecordPosition> entries_;  // of local rows 0, 1024, 2048, ... file after file
  int64_t num_rows_ = 0;
};

/// Throws Error(kInput) naming the first input that is not an existing regular file.
void check_inputs(const std::vector<std::string>& inputs);
/// Throws Error(kIo) when a packed file cannot be unpacked into a directory with so many free bytes. Where less than 64
/// times its packed size is free, it is unpacked once without writing to know its size; text rarely packs better.
void check_room_to_unpack(const std::string& path, const std::string& directory, int64_t free_bytes,
                          const std::function<void()>& on_progress = {});
/// On any rank: the file is here, has the size that was indexed and, where it is watched, has not been written to.
/// Throws Error(kIo) naming it.
void check_as_indexed(const InputFile& file);

/// A record as the index pass comes by.
struct IndexedRecord {
  int64_t row = 0;              ///< of the job
  io::RecordPosition position;  ///< where a reader of its file finds it
  std::string_view bytes;       ///< empty when oversized
};

struct IndexOptions {
  io::RecordReaderOptions reader;
  /// Packed inputs cannot be sought: they are unpacked into this existing directory, one file each. Empty: they are
  /// only counted (can_jump false).
  std::string scratch_dir;
  /// Sees every record of the job once, in row order. Empty: records are passed over unseen.
  std::function<void(const IndexedRecord&)> on_record;
  std::function<void()> on_progress = {};  ///< some of an input has been read or unpacked; may be empty
};

/// Reads every input once from front to back; no record is parsed. Files without rows are fine. Throws Error(kInput)
/// when an input is not a readable file and Error(kIo) when one is damaged or the scratch directory has no room.
Index build_index(const std::vector<std::string>& inputs, const IndexOptions& options);

}  // namespace tokenmill::jobs
