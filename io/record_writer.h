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
  /// line: one result with its newline; attachment: the bytes that belong to it and are no text, may be empty.
  virtual void write(int64_t row, std::string_view line, std::string_view attachment) = 0;
  /// The file is on stable storage under its name. Without it nothing is left and an older file stays.
  virtual void commit() = 0;
};

/// The lines as they are; attachments are left out.
class LineWriter final : public RecordWriter {
 public:
  explicit LineWriter(const std::string& path) : file_(path) {}
  void write(int64_t, std::string_view line, std::string_view) override { file_.write(line); }
  void commit() override { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace tokenmill::io
