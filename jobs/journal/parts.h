#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tokenmill::jobs {

class OutputDir;

/// What a committed row survives.
enum class Durability {
  kDisk,    ///< the loss of the machine: every commit ends with fdatasync, of the records first
  kSystem,  ///< the death of the process: records are handed to the operating system
};

/// A part file and its ledger (jobs/README.md), written by one replica of one run.
struct PartPaths {
  std::string part;
  std::string ledger;
  int64_t run = 0;  ///< runs of a job are counted from 0; a later one's entry for a row replaces an earlier one's
};

/// All parts with a ledger, oldest run first, then by replica. Throws Error(kIo) when the journal cannot be listed.
std::vector<PartPaths> list_parts(const OutputDir& directory);

/// For the run that owns the journal, before it adds parts: takes away what interrupted runs left behind the last entry
/// that counts. Torn ledgers are cut, and parts behind their last record; entries whose records are not there as their
/// digests say are cut too (checked are those of the last commit, and all where commits were not synced). A part without
/// entries is removed. Returns the parts that remain, as list_parts() does.
std::vector<PartPaths> cut_torn_parts(const OutputDir& directory);

}  // namespace tokenmill::jobs
