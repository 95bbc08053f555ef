#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/record_writer.h"

namespace tokenmill::rows {

/// Attribute "format" of such files.
inline constexpr const char* kTablesFormat = "tokenmill results 1";
/// Attribute that says, "true" or "false", whether rows are left out that have no result yet.
inline constexpr const char* kPartial = "partial";

/// Result lines, native and OpenAI, as the tables of an HDF5 file (README.md, "HDF5 results"): /rows has an entry per
/// row, /samples one per output. What a line does not say is empty, 0 or NaN. Memory does not grow with the job.
class ResultTables final : public io::RecordWriter {
 public:
  /// attributes: names and values for the file itself: where the results come from. hidden_columns: of /hidden_states,
  /// whose rows are the attachments of the lines; 0: there are none. partial: rows are left out.
  ResultTables(const std::string& path, const std::vector<std::pair<std::string, std::string>>& attributes,
               int64_t hidden_columns = 0, bool partial = false);
  ~ResultTables() override;
  void write(int64_t row, std::string_view line, std::string_view attachment) override;
  void commit() override;

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

}  // namespace tokenmill::rows
