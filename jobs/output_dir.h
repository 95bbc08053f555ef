#pragma once
#include <string>
#include <vector>

#include "parallel/mpi.h"

namespace tokenmill::jobs {

/// The files of an output directory; the layout is in jobs/README.md. Only names: nothing is opened here.
class OutputDir {
 public:
  explicit OutputDir(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string output_path() const { return path_ + "/output.jsonl"; }
  std::string report_path() const { return path_ + "/run.yaml"; }
  std::string journal() const { return path_ + "/journal"; }
  std::string parts_dir() const { return journal() + "/parts"; }
  std::string ledgers_dir() const { return journal() + "/ledger"; }
  std::string scratch_dir() const { return journal() + "/scratch"; }
  std::string part_path(int part) const;
  std::string ledger_path(int part) const;

  /// The names, relative to path(), of what tokenmill wrote there: results, journal, interrupted temporaries.
  std::vector<std::string> results() const;

 private:
  std::string path_;
};

/// Collective over world. Creates the directory with an empty journal. Earlier results are an Error(kConfig), or with
/// restart removed (nothing that tokenmill did not write is). Throws Error(kConfig) when an input would be removed, and
/// Error(kIo) naming the rank when the directory cannot be made, or when a rank does not see within visible_within_s
/// what rank 0 wrote there (network file systems may show a new file late).
void prepare_output(const OutputDir& directory, bool restart, const std::vector<std::string>& inputs,
                    double visible_within_s, const parallel::Comm& world);

}  // namespace tokenmill::jobs
