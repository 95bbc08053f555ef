#pragma once
#include <string>
#include <utility>
#include <vector>

#include "app/build.h"
#include "app/option_table.h"
#include "app/rank_figures.h"
#include "app/ranks.h"
#include "jobs/report.h"

namespace tokenmill::app {

/// Sampling values that were given.
jobs::ReportSection sampling_section(const io::JsonValue& sampling);
/// Options in force that bear on `least` or more: all but the inputs and what sampling_section() shows.
jobs::ReportSection configuration_section(const RunOptions& options, const ModelChoice& choice,
                                          Bearing least = Bearing::kNone);

/// What app knows of a job for run.yaml: versions, configuration in force, model (of a replica, all its ranks
/// together), machine, layout, communication, seconds of the start on rank 0. all: by world rank.
std::vector<std::pair<std::string, jobs::ReportSection>> report_sections(const RunOptions& options, const Ranks& ranks,
                                                                         const Replica& replica,
                                                                         const std::string& mpi_version,
                                                                         const std::vector<RankFigures>& all,
                                                                         const StepTotals& steps);

}  // namespace tokenmill::app
