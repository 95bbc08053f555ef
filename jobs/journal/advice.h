#pragma once
#include <utility>

#include "kernels/core/error.h"

namespace tokenmill::jobs {

/// Runs what writes to the journal or the results. A failed write ends the run, not the job: the message says so.
template <typename Function>
decltype(auto) with_advice(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kIo) throw;
    throw Error(ErrorKind::kIo,
                "{}; rows in the journal are kept: remove the cause (space, quota, file system) and give the same "
                "command again",
                e.what());
  }
}

}  // namespace tokenmill::jobs
