#pragma once
#include <functional>

#include "jobs/commit.h"
#include "jobs/feed.h"
#include "jobs/generator.h"
#include "jobs/progress.h"
#include "jobs/stop_level.h"

namespace tokenmill::jobs {

/// A leader's step loop: keeps the Generator in rows as long as the feed has any, steps it, hands finished rows to
/// commit, and ends when the feed has ended and the Generator is idle. publish gets this replica's status a few hundred
/// times a second at most, and at the end. stop_level is asked before every step: from kDrain on rows that have been
/// fed and not begun are dropped, with kSave (or when nothing more can finish) unfinished rows are handed to commit as
/// what they have come to, and the loop ends. Throws Error(kInternal) when the Generator finishes a row it was not
/// given, or loses one; whatever the Generator or commit throw passes through.
ReplicaStatus run_batches(
    Generator& generator, Feed& feed, Commit& commit, const std::function<void(const ReplicaStatus&)>& publish,
    const std::function<StopLevel()>& stop_level = [] { return StopLevel::kNone; });

}  // namespace tokenmill::jobs
