#pragma once
#include <functional>

#include "jobs/activity.h"
#include "jobs/commit.h"
#include "jobs/feed.h"
#include "jobs/generator.h"
#include "jobs/journal/running_rows.h"
#include "jobs/progress.h"
#include "jobs/stop_level.h"

namespace tokenmill::jobs {

/// What a step loop tells and asks its rank; any may be empty.
struct BatchRunHooks {
  std::function<void(const ReplicaStatus&)> publish;  ///< a few hundred times a second at most, and at the end
  std::function<StopLevel()> stop_level;              ///< asked before every step
  Activity* activity = nullptr;                       ///< says what the loop does
  RunningRows* running = nullptr;                     ///< is told which rows are being computed
};

/// A leader's step loop: keeps the Generator in rows as long as the feed has any, steps it, hands finished rows to
/// commit, and ends when the feed has ended and the Generator is idle. From StopLevel::kDrain on rows that have been
/// fed and not begun are dropped, with kSave (or when nothing more can finish) unfinished rows are handed to commit as
/// what they have come to, and the loop ends. Throws Error(kInternal) when the Generator finishes a row it was not
/// given, or loses one; whatever the Generator or commit throw passes through.
ReplicaStatus run_batches(Generator& generator, Feed& feed, Commit& commit, const BatchRunHooks& hooks = {});

}  // namespace tokenmill::jobs
