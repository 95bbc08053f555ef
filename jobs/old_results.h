#pragma once
#include <string>
#include <vector>

#include "jobs/output_dir.h"

namespace tokenmill::jobs {

/// Content of the file that makes a directory a journal of tokenmill's (OutputDir::kMarkerName).
inline constexpr const char* kJournalMarker = "tokenmill journal 2\n";

/// In a staged journal: the owner that is being written.
inline constexpr const char* kNewOwnerName = "owner.new";

/// Why a run cannot continue the journal in a directory: "with a journal of another version", ...; empty: it can.
std::string journal_problem(const OutputDir& directory);

/// What --restart may remove from an output directory: every path of a regular file or directory that tokenmill wrote,
/// contents before the directory that holds them, so that each can be unlinked alone. The staged journal named `own` is
/// left out (empty: none). Throws Error(kConfig) naming what has one of tokenmill's names but is not tokenmill's: another
/// kind of file, a symbolic link, a journal without its marker, unknown names in a journal.
std::vector<std::string> removable_results(const OutputDir& directory, const std::string& own);

/// path is, or is below, directory/result.
bool lies_in(const std::string& directory, const std::string& result, const std::string& path);

/// Throws Error(kConfig) when one of `paths` (inputs, the model, the job file, ...) is, or lies in, one of the results.
void check_not_results(const OutputDir& directory, const std::vector<std::string>& paths);

/// Removes the temporaries and staged journals of interrupted runs, but for the staged journal named `own`. What is not
/// tokenmill's stays.
void remove_leftovers(const OutputDir& directory, const std::string& own);

/// Removes the parts that earlier runs made of the results, but for the directory `keep`. What is not tokenmill's stays.
void remove_output_parts(const OutputDir& directory, const std::string& keep);

/// Unlinks each, never what a link points to. One that is gone is fine. Throws Error(kIo).
void remove_paths(const std::vector<std::string>& paths);

/// Removes the unpacked inputs in a scratch directory and the directory itself. Never fails; unknown files stay.
void remove_scratch(const std::string& scratch_dir) noexcept;

}  // namespace tokenmill::jobs
