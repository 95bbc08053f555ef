#pragma once
#include <functional>

#include "jobs/commit.h"
#include "jobs/feed.h"
#include "jobs/generator.h"
#include "jobs/progress.h"

namespace tokenmill::jobs {

/// A leader's step loop: keeps the Generator in rows as long as the feed has any, steps it, hands finished rows to
/// commit, and ends when the feed has ended and the Generator is idle. publish gets this replica's status a few hundred
/// times a second at most, and at the end. Throws Error(kInternal) when the Generator finishes a row it was not given,
/// or loses one; whatever the Generator or commit throw passes through.
ReplicaStatus run_batches(Generator& generator, Feed& feed, Commit& commit,
                          const std::function<void(const ReplicaStatus&)>& publish);

}  // namespace tokenmill::jobs
