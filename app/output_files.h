#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/options.h"
#include "io/record_writer.h"

namespace tokenmill::app {

/// What a job's results are written as. A run leaves it in its journal (JobOptions::outputs_note) for `merge`.
struct OutputFiles {
  bool lines = false, tables = false;  ///< output.jsonl, output.h5
  int64_t hidden_columns = 0;          ///< of /hidden_states; 0: there are none
  /// Of the tables: where results come from. Nothing in it depends on time or ranks.
  std::vector<std::pair<std::string, std::string>> attributes;

  static OutputFiles of(const RunOptions& options, int64_t hidden_size);
  std::string note() const;
  /// Of the latest run in a directory. Throws Error(kConfig) where no run has left it.
  static OutputFiles read(const std::string& directory);
  /// For results of both in one file: formats of either, attributes with the values of both. False: their hidden states
  /// have different lengths.
  bool add(const OutputFiles& other);
  /// partial: rows are left out.
  std::unique_ptr<io::RecordWriter> make_tables(const std::string& path, bool partial = false) const;
};

}  // namespace tokenmill::app
