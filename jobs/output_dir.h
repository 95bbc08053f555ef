#pragma once
#include <string>
#include <vector>

#include "parallel/mpi.h"

namespace tokenmill::jobs {

/// The files of an output directory; the layout is in jobs/README.md. Only names: nothing is opened here.
class OutputDir {
 public:
  static constexpr const char* kMarkerName = "tokenmill-journal";  ///< in the journal: it is tokenmill's
  static constexpr const char* kOwnerName = "owner";               ///< in the journal: the run that it belongs to

  explicit OutputDir(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string output_path() const { return path_ + "/output.jsonl"; }
  std::string hdf5_path() const { return path_ + "/output.h5"; }
  std::string report_path() const { return path_ + "/run.yaml"; }
  std::string journal() const { return path_ + "/journal"; }
  std::string parts_dir() const { return journal() + "/parts"; }
  std::string ledgers_dir() const { return journal() + "/ledger"; }
  std::string scratch_dir() const { return journal() + "/scratch"; }
  static constexpr const char* kRowPlanName = "row_plan";  ///< in scratch: the windows of the plan not in memory
  static std::string row_plan_path(const std::string& scratch_dir) { return scratch_dir + "/" + kRowPlanName; }
  std::string part_path(int part) const;
  std::string ledger_path(int part) const;

  /// Makes the directory and those above it where they are missing. Throws Error(kIo).
  void make() const;

  /// The names, relative to path(), of what tokenmill wrote there: results, journal, what interrupted runs left.
  std::vector<std::string> results() const;
  /// path names a result of a run into this directory or lies in its journal, whether they exist or not.
  bool is_result(const std::string& path) const;

 private:
  std::string path_;
};

/// Throws Error(kConfig) naming the earlier results in the directory, unless they are to be replaced.
void check_output_free(const OutputDir& directory, bool restart);

struct OutputClaimOptions {
  bool restart = false;                      ///< earlier results are replaced
  std::vector<std::string> protected_paths;  ///< files and directories that the run uses: never removed
  double visible_within_s = 10;              ///< how long a rank looks for what rank 0 wrote
};

/// One run's hold on its output directory. The new journal is made beside the old one (journal.tmp.TOKEN), so that old
/// results stay until publish(): whatever fails before leaves them as they were. There are no locks (cluster file
/// systems lose them): the journal names its owner, and a run that finds another name there stops.
class OutputClaim {
 public:
  OutputClaim(const OutputDir& directory, OutputClaimOptions options)
      : directory_(directory), options_(std::move(options)) {}
  /// Rank 0 removes the journal that was not published, or the unpacked inputs if the journal is still this run's.
  ~OutputClaim();
  OutputClaim(const OutputClaim&) = delete;
  OutputClaim& operator=(const OutputClaim&) = delete;

  /// Collective over world, once. Makes the directory and the journal beside. Earlier results are an Error(kConfig),
  /// and with restart what among them is not tokenmill's or is protected. Throws Error(kIo) naming the rank when the
  /// directory cannot be made, or when a rank does not see in time what rank 0 wrote there (network file systems may
  /// show a new file late).
  void stage(const parallel::Comm& world);
  /// Where inputs are unpacked before publish(); OutputDir::scratch_dir() after it.
  std::string staged_scratch_dir() const { return staged_journal() + "/scratch"; }
  /// Collective over world, after stage(): removes the earlier results, checked again, and puts the journal in place.
  void publish(const parallel::Comm& world);
  /// After publish(), on any rank and thread. Throws Error(kIo) naming the run that has taken the directory over.
  void check_still_ours() const;

 private:
  std::string staged_journal() const { return directory_.journal() + ".tmp." + token_; }
  void check_results(bool before_removal) const;
  void make_journal() const;
  void replace() const;
  void wait_until_visible(const std::string& journal, const parallel::Comm& world) const;

  const OutputDir directory_;
  const OutputClaimOptions options_;
  std::string token_;  // empty before stage()
  bool is_root_ = false;
  bool published_ = false;
};

}  // namespace tokenmill::jobs
