#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tokenmill::io {

/// Where a reader goes on: always the start of a line (of a record, for formats without lines). The default is the
/// start of the file. Worth storing: a reader that seeks to a position gives the same records as one that read up to
/// it.
struct RecordPosition {
  int64_t offset = 0;  ///< in the unpacked file; HDF5: the row number
  int64_t line = 1;    ///< the line that starts there
  bool operator==(const RecordPosition&) const = default;
};

inline constexpr int64_t kRecordPrefixBytes = 4096;

/// What names records: a file of lines, or a file and what in it, as "prompts.h5:/text".
struct RecordPath {
  std::string file;
  std::string dataset;  ///< "/text"; empty: the file is a file of lines
};
/// A name that exists is a file, whatever it looks like; else ":/" ends the file's name.
RecordPath split_record_path(const std::string& path);
/// True when a file begins as HDF5 files do; false when it cannot be read or does not.
bool is_hdf5_file(const std::string& path);
/// The files alone.
std::vector<std::string> files_of(const std::vector<std::string>& record_paths);

/// One record as it stands in the file: not parsed, not validated. Rows of HDF5 files: as a line would hold them.
struct Record {
  int64_t line = 0;        ///< counted from 1, blank lines included: what an editor shows
  int64_t offset = 0;      ///< of its first byte, in the unpacked file; HDF5: its row number
  int64_t length = 0;      ///< bytes, without the line's end; counted for oversized records too
  std::string_view bytes;  ///< valid until the reader is used again; empty when oversized
  bool oversized = false;  ///< longer than max_record_bytes: skipped, never held in memory
  /// The first kRecordPrefixBytes of an oversized record, to tell whose it is; valid as long as bytes.
  std::string_view prefix = {};
};

struct RecordReaderOptions {
  int64_t max_record_bytes = int64_t{64} << 20;
  std::string ids_dataset = {};  ///< HDF5: where the rows' ids are, in each file; empty: rows have none
};

/// Reads the records of one file from front to back with bounded memory. Not thread-safe; several readers may have the
/// same file open. Damaged packed data throws Error(kIo) from any method.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// The next record; false at the end of the file (again and again).
  virtual bool next(Record& record) = 0;
  /// Where next() looks for its record.
  virtual RecordPosition position() const = 0;
  /// Goes on at a position that position() gave for the same file. Packed files read up to it, from the start when it
  /// lies behind.
  virtual void seek(const RecordPosition& position) = 0;
  /// True when seek() costs nothing (plain files).
  virtual bool can_jump() const = 0;
  virtual const std::string& path() const = 0;

  /// Passes over up to `count` records; returns how many there were. This is the index pass: memory speed, no parsing.
  int64_t skip(int64_t count);
};

/// Opens a file of records: JSONL, plain or packed (see byte_stream.h), or what is in an HDF5 file (hdf5_reader.h).
std::unique_ptr<RecordReader> open_records(const std::string& path, const RecordReaderOptions& options = {});

}  // namespace tokenmill::io
