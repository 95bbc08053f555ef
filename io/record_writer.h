#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "io/file.h"

namespace tokenmill::io {

/// Takes the results of a job in row order and makes one file of them, which is complete or absent. Throws Error(kIo).
class RecordWriter {
 public:
  virtual ~RecordWriter() = default;
  /// record: one result line with its newline.
  virtual void write(int64_t row, std::string_view record) = 0;
  /// The file is on stable storage under its name. Without it nothing is left and an older file stays.
  virtual void commit() = 0;
};

/// The lines as they are.
class LineWriter final : public RecordWriter {
 public:
  explicit LineWriter(const std::string& path) : file_(path) {}
  void write(int64_t, std::string_view record) override { file_.write(record); }
  void commit() override { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace tokenmill::io
