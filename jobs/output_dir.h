#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "jobs/index.h"
#include "jobs/journal/identity.h"
#include "jobs/journal/parts.h"
#include "jobs/journal/predecessor.h"
#include "jobs/journal/sign_of_life.h"
#include "parallel/mpi.h"

namespace tokenmill::jobs {

/// The files of an output directory; the layout is in jobs/README.md. Only names: nothing is opened here.
class OutputDir {
 public:
  static constexpr const char* kMarkerName = "tokenmill-journal";  ///< in the journal: it is tokenmill's
  static constexpr const char* kOwnerName = "owner";               ///< in the journal: the run that it belongs to
  static constexpr const char* kIdentityName = "identity";         ///< in the journal: what decides its results
  static constexpr const char* kOutputsName = "outputs";           ///< in the journal: JobOptions::outputs_note
  static constexpr const char* kSignOfLifeName = "alive";          ///< in the journal: there while its owner lives

  explicit OutputDir(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string output_path() const { return path_ + "/output.jsonl"; }
  std::string hdf5_path() const { return path_ + "/output.h5"; }
  /// Of the files that one run's ranks made of the results (--output-layout parts).
  std::string output_parts_dir(int64_t run) const;
  static bool is_output_parts(const std::string& name);
  std::string report_path() const { return path_ + "/run.yaml"; }
  std::string journal() const { return path_ + "/journal"; }
  std::string parts_dir() const { return journal() + "/parts"; }
  std::string ledgers_dir() const { return journal() + "/ledger"; }
  std::string scratch_dir() const { return journal() + "/scratch"; }
  static constexpr const char* kRowPlanName = "row_plan";  ///< in scratch: the windows of the plan not in memory
  static constexpr const char* kNativeIdsName = "native_ids";  ///< in scratch: hashes being sorted (app), as the next
  static constexpr const char* kCustomIdsName = "custom_ids";
  static std::string row_plan_path(const std::string& scratch_dir) { return scratch_dir + "/" + kRowPlanName; }
  std::string identity_path() const { return journal() + "/" + kIdentityName; }
  std::string outputs_path() const { return journal() + "/" + kOutputsName; }
  std::string sign_of_life_path() const { return journal() + "/" + kSignOfLifeName; }
  PartPaths part(int64_t run, int64_t replica) const;
  std::string running_dir() const { return journal() + "/running"; }
  std::string running_rows(int64_t run, int64_t replica) const;
  std::string death_note(int64_t run, int64_t replica, int rank) const;

  /// Makes the directory and those above it where they are missing. Throws Error(kIo).
  void make() const;

  /// The names, relative to path(), of what tokenmill wrote there: results and journal.
  std::vector<std::string> results() const;
  /// The same for what interrupted runs left: temporaries of results, journals that were not put in place.
  std::vector<std::string> leftovers() const;
  /// path names a result of a run into this directory or lies in its journal, whether they exist or not.
  bool is_result(const std::string& path) const;

 private:
  std::string path_;
};

struct OutputUse {
  bool restart = false;        ///< earlier results are replaced
  bool accept_change = false;  ///< they are continued although another identity began them
  /// Files and directories that the run uses: never removed or replaced.
  std::vector<std::string> protected_paths;
};

/// True when the directory holds a job that a run can continue, false when there are no results or they are to be
/// replaced. identity: nullptr is not compared. Throws Error(kConfig): results without a journal to continue, another
/// identity (naming the differences), a protected path among the results; Error(kIo): a device or a link with the name of
/// a result; with restart also what is not tokenmill's.
/// own_journal: the name of a staged one that does not count.
bool can_continue(const OutputDir& directory, const OutputUse& use, const Identity* identity,
                  const std::string& own_journal = "");

/// One run's hold on its output directory. A new journal is made beside the old one (journal.tmp.TOKEN), so that what
/// is there stays until publish(): whatever fails before leaves it as it was. A job that is continued keeps its journal
/// and gets the new owner. There are no locks (cluster file systems lose them): the journal names its owner, who shows
/// that it lives, and a run that finds another name there stops.
class OutputClaim {
 public:
  /// visible_within_s: how long a rank looks for what rank 0 wrote. predecessor: what is known of who had it before.
  /// outputs_note: JobOptions.
  OutputClaim(const OutputDir& directory, OutputUse use, std::string outputs_note, Predecessor predecessor,
              double visible_within_s)
      : directory_(directory),
        use_(std::move(use)),
        outputs_note_(std::move(outputs_note)),
        visible_within_s_(visible_within_s),
        predecessor_(std::move(predecessor)) {}
  /// Rank 0 removes the journal that was not published, or the unpacked inputs and its sign of life if the journal is
  /// still this run's.
  ~OutputClaim();
  OutputClaim(const OutputClaim&) = delete;
  OutputClaim& operator=(const OutputClaim&) = delete;

  /// Collective over world, once; identity: rank 0's counts. Makes the directory and the journal beside, after
  /// can_continue() and when no other run uses it: Error(kConfig) names one that does. Throws Error(kIo) naming the
  /// rank when the directory cannot be made, or when a rank does not see in time what rank 0 wrote there (network file
  /// systems may show a new file late).
  void stage(const Identity& identity, const parallel::Comm& world);
  /// Where inputs are unpacked before publish(); OutputDir::scratch_dir() after it.
  std::string staged_scratch_dir() const { return staged_journal() + "/scratch"; }
  /// Collective over world, after stage(), and waits for other runs like that: removes earlier results that are to be
  /// replaced, checked again, and puts the journal in place; or takes the journal over that is there. rows: of the
  /// job.
  void publish(RowRange rows, const parallel::Comm& world);
  /// After publish(): this run's number, 0 for the first of a job.
  int64_t run() const { return run_; }
  /// After publish(), on any rank and thread. Throws Error(kIo) naming the run that has taken the directory over.
  void check_still_ours() const;

 private:
  std::string staged_name() const { return "journal.tmp." + token_; }
  std::string staged_journal() const { return directory_.path() + "/" + staged_name(); }
  bool find_results() const;
  void make_journal(const Identity& identity) const;
  void write_journal(const Identity& identity) const;
  void put_in_place(RowRange rows);
  void write_owner(RowRange rows) const;
  void replace() const;
  void take_over(RowRange rows);
  void wait_until_visible(const std::string& journal, const parallel::Comm& world) const;

  const OutputDir directory_;
  const OutputUse use_;
  const std::string outputs_note_;
  const double visible_within_s_;
  Predecessor predecessor_;
  std::optional<SignOfLife> sign_of_life_;  // on rank 0, after publish()
  std::string token_;  // empty before stage()
  Identity identity_;  // on rank 0
  int64_t run_ = 0;
  bool is_root_ = false;
  bool published_ = false;
};

}  // namespace tokenmill::jobs
