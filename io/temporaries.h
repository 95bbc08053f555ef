#pragma once
#include <string>

namespace tokenmill::io {

/// Removes what AtomicFile left on this machine of processes that were killed while they wrote path. Never fails.
void remove_abandoned_temporaries(const std::string& path) noexcept;

}  // namespace tokenmill::io
