#pragma once
#include <string>
#include <utility>
#include <vector>

#include "app/build.h"
#include "app/ranks.h"
#include "jobs/report.h"

namespace tokenmill::app {

/// Sampling values that were given.
jobs::ReportSection sampling_section(const io::JsonValue& sampling);
/// Options in force.
jobs::ReportSection configuration_section(const RunOptions& options, const ModelChoice& choice);

/// What app knows of a job for run.yaml: versions, configuration in force, model, machine, seconds of the start.
std::vector<std::pair<std::string, jobs::ReportSection>> report_sections(const RunOptions& options, const Ranks& ranks,
                                                                         const Replica& replica,
                                                                         const std::string& mpi_version);

}  // namespace tokenmill::app
