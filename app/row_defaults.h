#pragma once
#include <cstdint>

#include "app/options.h"
#include "app/rows/row.h"
#include "engine/models/checkpoint.h"

namespace tokenmill::app {

/// What rows take over unless they say otherwise: the job's options over the model's generation_config.json over vLLM's
/// defaults. It must be valid, since it would be an error in every row: throws Error(kConfig) naming the option or the
/// file, also for a setting of the file that cannot be honoured.
rows::RowSettings row_defaults(const RunOptions& options, const Checkpoint& checkpoint);

}  // namespace tokenmill::app
