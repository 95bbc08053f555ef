#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/record_writer.h"

namespace tokenmill::rows {

/// Result lines, native and OpenAI, as the tables of an HDF5 file (README.md, "HDF5 results"): /rows has an entry per
/// row, /samples one per output. What a line does not say is empty, 0 or NaN. Memory does not grow with the job.
class ResultTables final : public io::RecordWriter {
 public:
  /// attributes: names and values for the file itself: where the results come from.
  ResultTables(const std::string& path, const std::vector<std::pair<std::string, std::string>>& attributes);
  ~ResultTables() override;
  void write(int64_t row, std::string_view record) override;
  void commit() override;

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

}  // namespace tokenmill::rows
